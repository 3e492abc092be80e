"""Gather texts and values of small frames whose fields a walk has found, and prove them.

Rows of an array named `..._of` belong to series or points; the number of a frame is its place
among those that are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from backhaul_codec.bulk.frame_columns import Array, Columns, Strings, signed, starts
from backhaul_codec.bulk.frame_walk import COLUMNS, NOT_THERE, SERIES_MAX, FrameWalk
from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MAX, UINT64
from backhaul_codec.rules import require_name
from backhaul_codec.wire import cbor
from backhaul_codec.wire.frame_fields import (
    EXPONENT_MAX,
    FLOAT_WIDTHS,
    INTEGER_WIDTHS,
    KINDS,
    Field,
)
from backhaul_codec.wire.frame_layout import prove_texts

# By their widths in bytes.
STEP_DTYPES = {1: "i1", 2: "<i2", 4: "<i4", 8: "<i8"}
SERIES_DTYPES = {1: "u1", 2: "<u2"}

_COLUMN_WIDTHS = np.array([*INTEGER_WIDTHS, *FLOAT_WIDTHS.values()])
_COLUMN_DTYPES = ("i1", "<i2", "<i4", "<i8", "<f4", "<f8")
_INTEGER_COLUMNS = len(INTEGER_WIDTHS)
_REFUSED = -1


def _valid_kinds() -> Array:
    """Return by dtype, column and exponent whether they make sense together; the last are no one's."""
    valid = np.zeros((256, COLUMNS + 1, EXPONENT_MAX + 2), np.bool_)
    for dtype, column, exponent in KINDS:
        valid[dtype, column, exponent] = column < COLUMNS
    return valid


_VALID = _valid_kinds()


class Names:
    """Hold the texts of frames; each distinct list of texts is proven once.

    Args:
        walk: that found them.
        frames: which of its bodies.
    """

    def __init__(self, walk: FrameWalk, frames: Array) -> None:
        with_keys = frames[walk.end[Field.KEYS, frames] != NOT_THERE]
        self.types = _Texts(walk, Field.TYPES, frames, _types)
        self.keys = _Texts(walk, Field.KEYS, with_keys, _keys)
        named, prove = (Field.NODES, _nodes) if walk.bundles else (Field.NODE, _node)
        self.nodes = _Texts(walk, named, frames, prove)

    def agree(self, frames: Array, nodes: Sequence[str | None]) -> Array:
        """Tell of each frame whether its texts are right, and its node the wanted one (None: any)."""
        own = [
            wanted is None or self.nodes.lists[number] == [wanted]
            for number, wanted in zip(self.nodes.of_body[frames].tolist(), nodes, strict=True)
        ]
        good = np.array(own, np.bool_)
        for each in (self.types, self.keys, self.nodes):
            good &= each.of_body[frames] != _REFUSED
        return good


class _Texts:
    """Hold the distinct lists of texts of one field, and which of them each body has.

    Number 0 is for bodies without the field: the text of all their series is empty.
    """

    def __init__(
        self, walk: FrameWalk, field: Field, frames: Array, prove: Callable[[Any], list[str]]
    ) -> None:
        self.lists: list[list[str]] = [[""]]
        known: dict[bytes, int] = {}
        numbers = []
        ends = zip(
            walk.start[field, frames].tolist(), walk.end[field, frames].tolist(), strict=True
        )
        for start, end in ends:
            item = walk.joined[start:end]
            number = known.get(item)
            if number is None:
                number = known[item] = self._add(item, prove)
            numbers.append(number)
        self.of_body = np.zeros(len(walk.good), np.int64)
        self.of_body[frames] = numbers

    def _add(self, item: bytes, prove: Callable[[Any], list[str]]) -> int:
        try:
            self.lists.append(prove(cbor.load(item)))
        except CodecError:
            return _REFUSED
        return len(self.lists) - 1

    def strings(self, number_of: Array, ordinal_of: Array) -> Strings:
        """Return the text at a place in a list, for each series."""
        offsets = starts(np.array([len(each) for each in self.lists]))
        index = np.where(number_of == 0, 0, offsets[number_of] + ordinal_of)
        return Strings(list(chain.from_iterable(self.lists)), index)


def _types(item: Any) -> list[str]:
    return prove_texts(item, None, "type")


def _keys(item: Any) -> list[str]:
    return prove_texts(item, None, "key")


def _nodes(item: Any) -> list[str]:
    return prove_texts(item, None, "node")


def _node(item: Any) -> list[str]:
    return [require_name(item, "node")]


class Values:
    """Hold all of frames but their texts, as numbers.

    Args:
        walk: that found them.
        frames: which of its bodies, their fields as long as they must be.
    """

    def __init__(self, walk: FrameWalk, frames: Array) -> None:
        self._walk, self._frames = walk, frames
        self.points = walk.argument[Field.N, frames].astype(np.int64)
        self.series = walk.argument[Field.TYPES, frames].astype(np.int64)
        self.sid = self._field(Field.SID, self.points, SERIES_DTYPES)
        self.kinds = walk.flat[_runs(self._content(Field.KINDS), 3 * self.series)].reshape(-1, 3)
        self._frame_of = np.repeat(np.arange(len(frames)), self.series)
        # Points of each series. One of no series is taken for one of its frame's last.
        limits = np.repeat(self.series, self.points)
        self._strayed = np.repeat(np.arange(len(frames)), self.points)[self.sid >= limits]
        series_of = np.minimum(self.sid, limits - 1)
        series_of += np.repeat(starts(self.series), self.points)
        self.counts = np.bincount(series_of, minlength=len(self.kinds))
        self._has_base = self.kinds[:, 1] < _INTEGER_COLUMNS
        self._of_planes = walk.bundles
        self._base, self._base_negative = self._bases()

    def agree(self) -> Array:
        """Tell of each frame whether its series, columns and bases fit one another."""
        dtype, column, exponent = self.kinds.T
        column = np.minimum(column, COLUMNS)
        good_series = _VALID[dtype, column, np.minimum(exponent, EXPONENT_MAX + 1)]
        good_series &= self.counts > 0
        unsigned = dtype[self._has_base] == UINT64
        if not self._of_planes:  # they are modulo 2**64, and each has its place
            good_series[self._has_base] &= np.where(
                unsigned, ~self._base_negative, self._base <= INT64_MAX
            )
        good = self._columns_agree(column)
        good &= self._has_bases()
        good[self._frame_of[~good_series]] = False
        good[self._strayed] = False
        return good

    def columns(self, names: Names, message: Array, epoch: Array, seq: Array) -> Columns:
        """Return the columns of the frames, which agree."""
        walk, frames = self._walk, self._frames
        ordinal_of = np.arange(len(self.counts)) - starts(self.series)[self._frame_of]
        body_of = frames[self._frame_of]
        keyed = len(names.keys.lists) > 1
        return Columns(
            message=message,
            epoch=epoch,
            seq=seq,
            clock=walk.argument[Field.CLOCK, frames],
            points=self.points,
            series=self.series,
            t0=signed(walk.argument[Field.T0, frames], walk.negative[Field.T0, frames]),
            unit=walk.argument[Field.UNIT, frames],
            dt=self._field(Field.DT, self.points - 1, STEP_DTYPES),
            sid=self.sid,
            kinds=self.kinds,
            counts=self.counts,
            bases=signed(self._base, self._base_negative).view(np.uint64),
            entries=self._entries(),
            node=names.nodes.strings(
                names.nodes.of_body[body_of], ordinal_of if self._of_planes else ordinal_of * 0
            ),
            type=names.types.strings(names.types.of_body[body_of], ordinal_of),
            key=names.keys.strings(names.keys.of_body[body_of], ordinal_of) if keyed else None,
        )

    def _bases(self) -> tuple[Array, Array]:
        """Return the base of each series that has one, and whether it is negative."""
        if self._of_planes:
            count = self._per_frame(self._has_base)
            if not self._has_bases().all():  # those that have not are about to be left out
                count = np.zeros_like(count)
            base = self._field(Field.BASES, count, STEP_DTYPES).astype(np.int64)
            missing = int(self._has_base.sum()) - len(base)
            base = np.concatenate([base, np.zeros(missing, np.int64)])
            return base.view(np.uint64), np.zeros(len(base), np.bool_)
        order = np.cumsum(self._has_base) - 1
        order -= np.repeat(starts(self._per_frame(self._has_base)), self.series)
        place = np.minimum(order, SERIES_MAX - 1), self._frames[self._frame_of]
        walk, mine = self._walk, self._has_base
        return walk.base[place][mine], walk.base_negative[place][mine]

    def _has_bases(self) -> Array:
        """Tell of each frame whether it has as many bases as series that need one."""
        count, size = (
            self._per_frame(self._has_base),
            self._walk.argument[Field.BASES, self._frames],
        )
        good: Array = count == size
        if self._of_planes:
            there = self._walk.end[Field.BASES, self._frames] != NOT_THERE
            good = has_width(size, count, STEP_DTYPES) & (there == (count > 0))
        return good

    def _columns_agree(self, column: Array) -> Array:
        """Tell of each frame whether each of its columns is as long as its series require."""
        count = len(self.points)
        wanted = np.zeros((count, COLUMNS + 1), np.int64)
        np.add.at(wanted, (self._frame_of, column), self.counts - self._has_base)
        wanted_bytes = wanted[:, :COLUMNS] * _COLUMN_WIDTHS
        size = self._walk.column_size[:, self._frames].T
        agree: Array = ((size == wanted_bytes) | ((size == NOT_THERE) & (wanted_bytes == 0))).all(
            axis=1
        )
        return agree

    def _per_frame(self, of_series: Array) -> Array:
        """Count for each frame of how many series it holds."""
        return np.bincount(self._frame_of[of_series], minlength=len(self.points))

    def _entries(self) -> dict[int, Array]:
        """Return the entries of each column that has any."""
        found: dict[int, Array] = {}
        for column, letters in enumerate(_COLUMN_DTYPES):
            width = np.dtype(letters).itemsize
            size = np.maximum(self._walk.column_size[column, self._frames], 0)
            if size.any():
                start = self._walk.column_start[column, self._frames]
                found[column] = self._numbers(start, size // width, width).view(letters)
        return found

    def _field(self, field: Field, count: Array, dtypes: Mapping[int, str]) -> Array:
        """Return the numbers of a field, `count` in each frame, of any width."""
        size = self._walk.argument[field, self._frames].astype(np.int64)
        start = self._content(field)
        width = np.where(count == 0, 1, size // np.maximum(count, 1))
        widths = np.unique(width).tolist()
        if len(widths) == 1:
            return self._numbers(start, count, widths[0]).view(dtypes[widths[0]])
        numbers = np.empty(int(count.sum()), np.int64)
        for each in widths:
            some = width == each
            mine = self._numbers(start[some], count[some], each).view(dtypes[each])
            numbers[np.repeat(some, count)] = mine
        return numbers

    def _content(self, field: Field) -> Array:
        """Return where the content of a byte string starts."""
        walk, frames = self._walk, self._frames
        found: Array = walk.end[field, frames] - walk.argument[field, frames].astype(np.int64)
        return found

    def _numbers(self, start: Array, count: Array, width: int) -> Array:
        """Return numbers out of their planes, as bytes."""
        at = _runs(start, count)
        if width == 1:
            return self._walk.flat[at]
        plane = np.repeat(count, count)
        raw = np.empty((len(at), width), np.uint8)
        for number in range(width):
            raw[:, number] = self._walk.flat[at + number * plane]
        return raw.reshape(-1)


def has_width(size: Array, count: Array, widths: Iterable[int]) -> Array:
    """Tell of each byte string whether it has `count` numbers of one of these widths."""
    fits: Array = np.logical_or.reduce([size.astype(np.int64) == count * width for width in widths])
    return fits


def _runs(start: Array, size: Array) -> Array:
    """Return the indices of runs of bytes, one run after the other."""
    return np.repeat(start - starts(size), size) + np.arange(int(size.sum()))
