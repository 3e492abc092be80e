"""Find where the fields of many frame bodies lie, all bodies walked in step.

What is found is where each field begins and ends, and what its head says; `frame_layout` judges what
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from backhaul_codec.bulk.frame_columns import Array, starts
from backhaul_codec.wire import cbor
from backhaul_codec.wire.frame_fields import Field

if TYPE_CHECKING:
    from backhaul_codec.bulk.frame_columns import Array

_INFO = np.arange(32)
# Bytes after the first of a head, by its low five bits; 28 to 31 are no definite length.
_MORE_BYTES = np.where(_INFO < 24, 0, 1 << np.clip(_INFO - 24, 0, 3))
_SHIFTS = (64 - 8 * _MORE_BYTES).astype(np.uint64)
_LONGEST_HEAD = 9


class BodyWalk:
    """Hold where in each CBOR body its next item begins. Its methods read an item of some of the bodies.

    A tiny message costs Python more for its dozen items than for its points. In step they cost a few
    numpy calls per item, however many bodies there are. A body that has anything unusual is merely left
    out, for `cbor` to judge.

    `good` tells of each body whether nothing unusual was met; `joined` and `flat` are all bodies,
    end to end, as offsets count them.

    Args:
        bodies: at least one.
    """

    def __init__(self, bodies: Sequence[bytes]) -> None:
        sizes = np.array([len(body) for body in bodies])
        self.joined = b"".join([*bodies, bytes(2 * _LONGEST_HEAD)])
        self.flat = np.frombuffer(self.joined, np.uint8)
        # The eight bytes from each offset on, as one number.
        self._words = np.ndarray(len(self.flat) - 7, ">u8", self.joined, strides=(1,))
        self.ends = np.cumsum(sizes)
        self.at = starts(sizes)
        self.good = np.ones(len(sizes), np.bool_)

    def turns(self, bodies: Array, counts: Array) -> list[Array]:
        """Return which bodies have a first item, a second, and so on."""
        return [bodies[counts > number] for number in range(int(counts.max(initial=0)))]

    def many(self, bodies: Array, major: int, most: int) -> Array:
        """Read the head of an array or map of at most `most`; return 0 for any other."""
        count = self.argument_of(bodies, major)
        self.require(bodies, count <= most)
        return np.where(self.good[bodies], count, 0).astype(np.int64)

    def content(self, bodies: Array, major: int) -> tuple[Array, Array]:
        """Pass over bytes or a text; return where the content starts, and its size."""
        return self.skip(bodies, self.argument_of(bodies, major))

    def skip(self, bodies: Array, size: Array) -> tuple[Array, Array]:
        """Pass over as many bytes; return where they start, and how many there were."""
        begin = self.at[bodies]
        room = (self.ends[bodies] - begin).astype(np.uint64)
        self.require(bodies, size <= room)
        kept = np.minimum(size, room).astype(np.int64)
        self.at[bodies] = begin + kept
        return begin, kept

    def argument_of(self, bodies: Array, major: int) -> Array:
        """Read the head of an item of one major type; return its argument."""
        found, argument = self.head(bodies)
        self.require(bodies, found == major)
        return argument

    def head(self, bodies: Array) -> tuple[Array, Array]:
        """Read the head of each body's next item: its major type and its argument."""
        at = self.at[bodies]
        first = self.flat[at]
        info = first & 31
        more = _MORE_BYTES[info]
        argument = np.where(more == 0, info, self._words[at + 1] >> _SHIFTS[info])
        end, most = at + 1 + more, self.ends[bodies]
        self.require(bodies, (end <= most) & (info < 28))
        self.at[bodies] = np.minimum(end, most)
        return first >> 5, argument

    def require(self, bodies: Array, condition: Array) -> None:
        """Leave out the bodies for which a condition does not hold."""
        self.good[bodies[~condition]] = False


# A body has at most so many series: each takes a step of all bodies.
SERIES_MAX = 256
COLUMNS = 6  # 0..5: blobs are for Python
NOT_THERE = -1

_FIELDS = len(Field)


class FrameWalk(BodyWalk):
    """Hold where the fields of bodies lie: arrays have a row for each field, a column for each body.

    Args:
        bodies: at least one.
        bundles: they are bodies of bundles, else of frames.
    """

    def __init__(self, bodies: Sequence[bytes], *, bundles: bool = False) -> None:
        super().__init__(bodies)
        self.bundles = bundles
        self._read = _READ_BUNDLES if bundles else _READ
        count = len(bodies)
        self.start = np.zeros((_FIELDS, count), np.int64)
        self.end = np.full((_FIELDS, count), NOT_THERE)
        # What a head says: the integer itself, how many bytes, how many items.
        self.argument = np.zeros((_FIELDS, count), np.uint64)
        self.negative = np.zeros((_FIELDS, count), np.bool_)
        self.column_start = np.zeros((COLUMNS, count), np.int64)
        self.column_size = np.full((COLUMNS, count), NOT_THERE)
        # Zeros that nobody touches take no memory: the last rows are seldom used.
        self.base = np.zeros((SERIES_MAX, count), np.uint64)
        self.base_negative = np.zeros((SERIES_MAX, count), np.bool_)
        self._walk(np.arange(count))

    def _walk(self, bodies: Array) -> None:
        pairs = self.many(bodies, cbor.MAP, _FIELDS)
        for mine in self.turns(bodies, pairs):
            field = self.argument_of(mine, cbor.UNSIGNED)
            self.require(mine, field < _FIELDS)
            good = self.good[mine]
            mine, field = mine[good], field[good].astype(np.int64)
            for each in np.flatnonzero(np.bincount(field)).tolist():
                self._field(each, mine[field == each])
        self.good &= self.at == self.ends

    def _field(self, field: int, bodies: Array) -> None:
        read = self._read.get(field)
        if read is None:
            self.good[bodies] = False
            return
        self.require(bodies, self.end[field, bodies] == NOT_THERE)
        self.start[field, bodies] = self.at[bodies]
        read(self, field, bodies)
        self.end[field, bodies] = self.at[bodies]

    def _integer(self, field: int, bodies: Array) -> None:
        major, self.argument[field, bodies] = self.head(bodies)
        self.require(bodies, major <= cbor.NEGATIVE)
        self.negative[field, bodies] = major == cbor.NEGATIVE

    def _bytes(self, field: int, bodies: Array) -> None:
        _, self.argument[field, bodies] = self.content(bodies, cbor.BYTES)

    def _text(self, _field: int, bodies: Array) -> None:
        self.content(bodies, cbor.TEXT)

    def _texts(self, field: int, bodies: Array) -> None:
        count = self.many(bodies, cbor.ARRAY, SERIES_MAX)
        self.argument[field, bodies] = count
        for mine in self.turns(bodies, count):
            self.content(mine, cbor.TEXT)

    def _integers(self, field: int, bodies: Array) -> None:
        count = self.many(bodies, cbor.ARRAY, SERIES_MAX)
        self.argument[field, bodies] = count
        for number, mine in enumerate(self.turns(bodies, count)):
            major, self.base[number, mine] = self.head(mine)
            self.require(mine, major <= cbor.NEGATIVE)
            self.base_negative[number, mine] = major == cbor.NEGATIVE

    def _columns(self, _field: int, bodies: Array) -> None:
        count = self.many(bodies, cbor.MAP, COLUMNS)
        for mine in self.turns(bodies, count):
            column = self.argument_of(mine, cbor.UNSIGNED)
            self.require(mine, column < COLUMNS)
            place = (np.minimum(column, COLUMNS - 1).astype(np.int64), mine)
            self.require(mine, self.column_size[place] == NOT_THERE)
            self.column_start[place], self.column_size[place] = self.content(mine, cbor.BYTES)


_READ: dict[int, Callable[[FrameWalk, int, Array], None]] = {
    **dict.fromkeys((Field.N, Field.T0, Field.UNIT, Field.CLOCK), FrameWalk._integer),
    **dict.fromkeys((Field.DT, Field.SID, Field.KINDS), FrameWalk._bytes),
    **dict.fromkeys((Field.TYPES, Field.KEYS), FrameWalk._texts),
    Field.NODE: FrameWalk._text,
    Field.BASES: FrameWalk._integers,
    Field.COLUMNS: FrameWalk._columns,
}
_READ_BUNDLES = _READ | {Field.NODES: FrameWalk._texts, Field.BASES: FrameWalk._bytes}
del _READ_BUNDLES[Field.NODE]
