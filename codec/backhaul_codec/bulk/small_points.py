"""Prove many single points at once with numpy, and lay them end to end as frames of one.

What it takes, `point_body` would take as well, and to the same point; what it does not take may be
right or wrong, and is for `point_body` to judge: tombstones, origins, opaque values, short floats,
damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backhaul_codec.bulk.frame_columns import Array, Columns, Strings, signed
from backhaul_codec.bulk.frame_walk import BodyWalk
from backhaul_codec.bulk.small_envelopes import Opened, open_small
from backhaul_codec.bulk.subject_names import NO_NAMES, SubjectNames
from backhaul_codec.points import BYTES, FLOAT64, INT64, INT64_MAX, JSON, TEXT, UINT64, Kind
from backhaul_codec.wire import cbor
from backhaul_codec.wire.frame_fields import BLOB_COLUMN, FLOAT64_COLUMN
from backhaul_codec.wire.point_body import JSON_TAG

_ITEMS = 2  # time and value
_FLOAT64_HEAD = 0xFB
_NO_VALUE = 0
_BLOB_DTYPES = {cbor.BYTES: BYTES, cbor.TEXT: TEXT, cbor.TAG: JSON}


class SmallPoints(NamedTuple):
    """Hold which messages are proven points, and the columns of those that are rows (None: of none)."""

    proven: list[int]
    columns: Columns | None


def read_small_points(
    messages: Sequence[bytes], names: Sequence[SubjectNames | None], fewest: int
) -> SmallPoints:
    """Return which messages are proven small points, and the columns of those that are rows.

    `names` are what their subjects say (None: leave that message out). Of fewer small points than
    `fewest`, none is read.
    """
    may_be = [
        index
        for index, said in enumerate(names)
        if said is not None and said.kind is not Kind.FRAME
    ]
    opened = open_small(messages, may_be, Kind.POINT, fewest)
    if opened is None:
        return SmallPoints([], None)
    walk = _PointWalk(opened.bodies)
    good = np.flatnonzero(walk.good)
    proven = opened.message[good].tolist()
    said_of = [names[index] for index in proven]
    rows = np.array([said is not None and not said.silent for said in said_of], np.bool_)
    columns = _columns(walk, good[rows], opened, names) if rows.any() else None
    return SmallPoints(proven, columns)


class _PointWalk(BodyWalk):
    """Hold the time and the value of each body; `blobs` are the texts and bytes among the values."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        super().__init__(bodies)
        every = np.arange(len(bodies))
        self.require(every, self.many(every, cbor.ARRAY, _ITEMS) == _ITEMS)
        major, time = self.head(every)
        self.require(every, (major <= cbor.NEGATIVE) & (time <= INT64_MAX))
        self.time = signed(time, major == cbor.NEGATIVE)
        self.dtype = np.full(len(bodies), _NO_VALUE, np.uint8)
        first = self.flat[self.at]
        major, self.argument = self.head(every)
        self.negative = major == cbor.NEGATIVE
        self._numbers(first, major)
        self.blobs: list[str | bytes | None] = [None] * len(bodies)
        for blob_major, dtype in _BLOB_DTYPES.items():
            self._blobs(every[self.good & (major == blob_major)], dtype)
        self.good &= (self.at == self.ends) & (self.dtype != _NO_VALUE)

    def _numbers(self, first: Array, major: Array) -> None:
        fits = self.argument <= INT64_MAX
        self.dtype[first == _FLOAT64_HEAD] = FLOAT64
        self.dtype[(major <= cbor.NEGATIVE) & fits] = INT64
        self.dtype[(major == cbor.UNSIGNED) & ~fits] = UINT64

    def _blobs(self, bodies: Array, dtype: int) -> None:
        size = self.argument[bodies]
        if dtype == JSON:
            self.require(bodies, size == JSON_TAG)
            size = self.argument_of(bodies, cbor.BYTES)
        begin, size = self.skip(bodies, size)
        self.dtype[bodies] = dtype
        for body, start, end in zip(
            bodies.tolist(), begin.tolist(), (begin + size).tolist(), strict=True
        ):
            blob = self.joined[start:end]
            try:
                self.blobs[body] = blob if dtype == BYTES else blob.decode()
            except UnicodeDecodeError:
                self.good[body] = False


def _columns(
    walk: _PointWalk, bodies: Array, opened: Opened, names: Sequence[SubjectNames | None]
) -> Columns:
    count = len(bodies)
    message = opened.message[bodies]
    headers = opened.headers[bodies]
    dtype, argument = walk.dtype[bodies], walk.argument[bodies]
    column = np.zeros(count, np.uint8)
    column[dtype == FLOAT64] = FLOAT64_COLUMN
    column[dtype >= TEXT] = BLOB_COLUMN
    blobs = [walk.blobs[body] for body in bodies[column == BLOB_COLUMN].tolist()]
    entries = {
        FLOAT64_COLUMN: argument[column == FLOAT64_COLUMN].view(np.float64),
        BLOB_COLUMN: np.arange(len(blobs)),
    }
    numbers: dict[SubjectNames, int] = {}
    said_of = [names[index] or NO_NAMES for index in message.tolist()]
    number_of = np.array([numbers.setdefault(said, len(numbers)) for said in said_of])
    return Columns(
        message=message,
        epoch=headers["epoch"],
        seq=headers["seq"],
        clock=np.zeros(count, np.uint8),
        points=np.ones(count, np.int64),
        series=np.ones(count, np.int64),
        t0=walk.time[bodies],
        unit=np.ones(count, np.uint64),
        dt=np.zeros(0, np.int8),
        sid=np.zeros(count, np.uint8),
        kinds=np.stack([dtype, column, np.zeros(count, np.uint8)], axis=1),
        counts=np.ones(count, np.int64),
        bases=signed(argument, walk.negative[bodies]).view(np.uint64)[column == 0],
        entries=entries,
        node=Strings([each.node or "" for each in numbers], number_of),
        type=Strings([each.type for each in numbers], number_of),
        key=Strings([each.key for each in numbers], number_of),
        blobs=[blob for blob in blobs if blob is not None] if blobs else None,
    )
