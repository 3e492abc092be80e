"""Write the body of a frame: many points of one node, column by column.

Every step over all points runs inside the interpreter's own loops (map, zip, array), because this
is the hot path of the vehicle: 1-2 us a point on a desktop core.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import copysign, gcd, isfinite
from operator import attrgetter, sub
from typing import Any

import cbor2

from backhaul_codec.errors import CodecError
from backhaul_codec.points import (
    BYTES,
    FLOAT64,
    INT64,
    INT64_MAX,
    INT64_MIN,
    TEXT,
    UINT64,
    Opaque,
    Point,
    Value,
)
from backhaul_codec.rules import (
    blob_size,
    plain_value,
    require_name,
    require_time,
    require_tombstone,
)
from backhaul_codec.wire.float_column import Integers, as_float32, scale
from backhaul_codec.wire.frame_fields import (
    BLOB_COLUMN,
    EXPANDED_BYTES_MAX,
    FLOAT32_COLUMN,
    FLOAT64_COLUMN,
    INDEX_CODES,
    INTEGER_WIDTHS,
    POINTS_MAX,
    SAID_AGAIN_KEY,
    SERIES_MAX,
    SIGNED_CODES,
    Field,
    is_text,
)

_FIELDS = attrgetter("node", "type", "time", "value", "key", "tombstone", "origin")
# What a series is told apart by, besides type and key: the class of its values where that is
# enough, else a dtype, or _ODD for what would spoil a series of decimals: NaN, infinities and -0.0
# (which rounding -0.04 makes).
_DTYPES = {float: FLOAT64, int: INT64, str: TEXT, bytes: BYTES}
_ODD = -FLOAT64
_DECIMAL = (float, FLOAT64)  # labels of series of doubles that may be scaled
_EXACT_MAX = 1 << 53
_ALIKE_MIN = 3  # of fewer series none is like most others
# Type, key, and the class of the values; a series of a bundle has its node besides.
_FRAME_NAMES = 3
_NEGATIVE_ZERO = array("d", [-0.0]).tobytes()


def write_frame(
    points: Sequence[Point], clock: int, *, said_again: bool = False, bundle: bool = False
) -> bytes:
    """Return the body of a frame of 1 to POINTS_MAX points of one node, in the order given.

    `said_again`: all of them were sent before. `bundle`: of any nodes, and a bundle's body.

    Raises: CodecError (`points`, `node`, `clock`, or the rule that a point breaks).
    """
    if not 1 <= len(points) <= POINTS_MAX:
        raise CodecError(f"a frame holds 1 to {POINTS_MAX} points, not {len(points)}", "points")
    if clock not in (0, 1, 2):
        raise CodecError(f"clock {clock!r} is not 0, 1 or 2", "clock")
    nodes, types, times, values, keys, tombstones, origins = zip(*map(_FIELDS, points), strict=True)
    if not bundle and len(set(nodes)) != 1:
        raise CodecError("a frame holds the points of one node", "node")
    columns = _Columns((types, keys, nodes) if bundle else (types, keys), values)
    fields: dict[int, Any] = {
        Field.N: len(points),
        **_time_fields(times),
        **columns.fields(),
    }
    if not bundle:
        fields[Field.NODE] = require_name(nodes[0], "node")
    if any(tombstones):
        fields[Field.TOMB] = bytes(map(require_tombstone, tombstones))
    if any(origins):
        fields[Field.ORIGIN] = _origin_field(origins)
    if clock:
        fields[Field.CLOCK] = clock
    if said_again:
        fields[SAID_AGAIN_KEY] = 1
    body = cbor2.dumps(fields)
    if len(body) * len(points) > EXPANDED_BYTES_MAX:
        _require_expansion(points)
    return body


def _time_fields(times: Sequence[int]) -> dict[int, Any]:
    for bad in {type(time) for time in times} - {int}:
        raise CodecError(f"a time is not an int64 of nanoseconds but {bad.__name__}", "time")
    require_time(min(times))
    require_time(max(times))
    steps = differences(times)
    unit = gcd(*steps) or 1
    if unit > 1:
        steps = [step // unit for step in steps]
    return {Field.T0: times[0], Field.UNIT: unit, Field.DT: signed(steps, column_for(steps))}


class _Columns:
    """Sort values into series, and series into columns."""

    def __init__(self, names: tuple[Sequence[str], ...], values: Sequence[Value]) -> None:
        """Take names (types, keys, and of a bundle nodes) and the value of each point."""
        self.bases: list[int] = []
        self.kinds = bytearray()
        self.integers: list[list[int]] = [[], [], [], []]
        self.floats: dict[int, array[float]] = {
            FLOAT32_COLUMN: array("f"),
            FLOAT64_COLUMN: array("d"),
        }
        self.blob_indices: list[int] = []
        self.blobs: dict[str | bytes, int] = {}
        self.sids, self.series, buckets = _group(names, values, map(type, values))
        labels = [series[-1] for series in self.series]
        if not all(map(_is_regular, labels, buckets)):
            values = [plain_value(value) for value in values]
            self.sids, self.series, buckets = _group(names, values, map(_label, values))
            labels = [series[-1] for series in self.series]
        if len(self.series) > SERIES_MAX:
            raise CodecError(f"a frame holds at most {SERIES_MAX} series", "series")
        scaled = [
            scale(bucket) if label in _DECIMAL else None
            for label, bucket in zip(labels, buckets, strict=True)
        ]
        if len(self.series[0]) > _FRAME_NAMES:
            scaled = _alike([series[0] for series in self.series], scaled)
        for label, bucket, integers in zip(labels, buckets, scaled, strict=True):
            self._add(label, bucket, integers)

    def fields(self) -> dict[int, Any]:
        """Return the fields of a frame that name its series and hold their values."""
        types = [require_name(series[0], "type") for series in self.series]
        keys = [require_name(series[1], "key") for series in self.series]
        fields: dict[int, Any] = {
            Field.SID: _indices(self.sids, len(types)),
            Field.TYPES: types,
            Field.KINDS: bytes(self.kinds),
            Field.COLUMNS: self._column_data(),
        }
        if any(keys):
            fields[Field.KEYS] = keys
        if self.bases:
            fields[Field.BASES] = self.bases
        if self.blobs:
            fields[Field.BLOBS] = list(self.blobs)
        if len(self.series[0]) > _FRAME_NAMES:
            if self.bases:  # like beside like, as all other numbers: a third of a small bundle
                bases = [(base - INT64_MIN) % 2**64 + INT64_MIN for base in self.bases]
                fields[Field.BASES] = signed(bases, column_for(bases))
            fields[Field.NODES] = [require_name(series[2], "node") for series in self.series]
        return fields

    def _column_data(self) -> dict[int, bytes]:
        data: dict[int, bytes] = {}
        for column, numbers in enumerate(self.integers):
            if numbers:
                data[column] = signed(numbers, column)
        for column, doubles in self.floats.items():
            if doubles:
                data[column] = _planes(doubles)
        if self.blob_indices:
            data[BLOB_COLUMN] = _indices(self.blob_indices, len(self.blobs))
        return data

    def _add(self, label: Any, bucket: list[Any], integers: Integers | None) -> None:
        dtype = _DTYPES.get(label) or abs(label)
        if dtype == FLOAT64:
            self._add_doubles(bucket, integers)
        elif dtype in (INT64, UINT64):
            self._add_integers(dtype, Integers(0, bucket))
        else:
            self._add_blobs(dtype, bucket)

    def _add_doubles(self, values: list[float], integers: Integers | None) -> None:
        if integers is not None and column_for(differences(integers.numbers)) < 3:
            self._add_integers(FLOAT64, integers)
            return
        narrow = as_float32(values)
        if narrow is not None:
            self.floats[FLOAT32_COLUMN].extend(narrow)
            self.kinds += bytes((FLOAT64, FLOAT32_COLUMN, 0))
        elif integers is not None:
            self._add_integers(FLOAT64, integers)
        else:
            self.floats[FLOAT64_COLUMN].extend(values)
            self.kinds += bytes((FLOAT64, FLOAT64_COLUMN, 0))

    def _add_integers(self, dtype: int, integers: Integers) -> None:
        steps = differences(integers.numbers)
        column = column_for(steps)
        self.integers[column] += steps
        self.bases.append(integers.numbers[0])
        self.kinds += bytes((dtype, column, integers.exponent))

    def _add_blobs(self, dtype: int, bucket: list[Any]) -> None:
        for value in set(bucket):
            plain_value(value)
        if isinstance(bucket[0], Opaque):
            bucket = [opaque.data for opaque in bucket]
            if is_text(dtype):
                bucket = [data.decode() for data in bucket]
        blobs = self.blobs
        self.blob_indices += [blobs.setdefault(blob, len(blobs)) for blob in bucket]
        self.kinds += bytes((dtype, BLOB_COLUMN, 0))


def _alike(types: list[str], scaled: list[Integers | None]) -> list[Integers | None]:
    """Return series with as many decimals as most others of their type have, where that takes no more bytes.

    A reading of one decimal is a whole number now and then. Series of a gateway that agree in their kinds are all
    that a dictionary knows of them; each that does not breaks a match.
    """
    known = [integers for integers in scaled if integers is not None]
    if len(known) < _ALIKE_MIN:
        return scaled
    commons = Counter(
        (type_, each.exponent) for type_, each in zip(types, scaled, strict=True) if each
    )
    width = column_for([each.numbers[0] for each in known])
    return [
        each and _finer(each, type_, commons, width)
        for type_, each in zip(types, scaled, strict=True)
    ]


def _finer(
    integers: Integers, type_: str, commons: Counter[tuple[str, int]], width: int
) -> Integers:
    exponent, numbers = integers
    while commons[type_, exponent + 1] > commons[type_, exponent]:
        exponent += 1
    if exponent == integers.exponent:
        return integers
    power = 10 ** (exponent - integers.exponent)
    finer = [number * power for number in numbers]
    # Up to 2**53 both a number and ten times as much are doubles, so either quotient is the same double.
    fits = max(map(abs, finer)) <= _EXACT_MAX and column_for(finer[:1]) <= width
    same = column_for(differences(finer)) == column_for(differences(numbers))
    return Integers(exponent, finer) if fits and same else integers


def _group(
    names: tuple[Sequence[str], ...], values: Sequence[Value], labels: Iterable[Any]
) -> tuple[list[int], list[tuple[Any, ...]], list[list[Any]]]:
    """Return the series number of each point, the series, and the values of each series."""
    numbers: defaultdict[tuple[Any, ...], int] = defaultdict()
    numbers.default_factory = numbers.__len__
    try:
        sids = list(map(numbers.__getitem__, zip(*names, labels, strict=True)))
    except TypeError as error:  # a list has no hash
        raise CodecError("a node, type or key is not text", "name") from error
    buckets: list[list[Any]] = [[] for _ in numbers]
    appends = [bucket.append for bucket in buckets]
    for sid, value in zip(sids, values, strict=True):
        appends[sid](value)
    return sids, list(numbers), buckets


def _is_regular(label: type, bucket: list[Any]) -> bool:
    """Tell whether a bucket of one class is one series as it stands."""
    if label is float:
        # The search may find a negative zero across two values, too: that only costs time.
        return all(map(isfinite, bucket)) and _NEGATIVE_ZERO not in array("d", bucket).tobytes()
    if label is int:
        return all(INT64_MIN <= end <= INT64_MAX for end in (min(bucket), max(bucket)))
    return label is str or label is bytes


def _label(value: Value) -> int:
    if isinstance(value, float):
        return _ODD if not isfinite(value) or _is_negative_zero(value) else FLOAT64
    if isinstance(value, int):
        return INT64 if value <= INT64_MAX else UINT64
    return value.dtype if isinstance(value, Opaque) else _DTYPES[type(value)]


def _is_negative_zero(value: float) -> bool:
    return value == 0.0 and copysign(1.0, value) < 0


def differences(numbers: Sequence[int]) -> list[int]:
    """Return each number less the one before, modulo 2**64 as an int64."""
    steps = list(map(sub, numbers[1:], numbers))
    if steps and (max(steps) > INT64_MAX or min(steps) < INT64_MIN):
        return [(step - INT64_MIN) % 2**64 + INT64_MIN for step in steps]
    return steps


def column_for(steps: list[int]) -> int:
    """Return the narrowest of columns 0..3 (int8, 16, 32, 64) that holds all of the steps."""
    if not steps:
        return 0
    largest = max(max(steps), -1 - min(steps))
    return 0 if largest < 1 << 7 else 1 if largest < 1 << 15 else 2 if largest < 1 << 31 else 3


def _indices(indices: list[int], count: int) -> bytes:
    width = 1 if count <= 1 << 8 else 2 if count <= 1 << 16 else 4
    return _planes(array(INDEX_CODES[width], indices))


def signed(numbers: list[int], column: int) -> bytes:
    """Return numbers as the data of one of columns 0..3."""
    return _planes(array(SIGNED_CODES[INTEGER_WIDTHS[column]], numbers))


def _planes(numbers: array[Any]) -> bytes:
    """Put byte 0 of all numbers first, then byte 1, ...: like beside like deflates better."""
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    width = numbers.itemsize
    return raw if width == 1 else b"".join([raw[plane::width] for plane in range(width)])


def _require_expansion(points: Sequence[Point]) -> None:
    size = sum(
        sum(len(name.encode()) for name in (point.node, point.type, point.key, point.origin))
        + blob_size(point.value)
        for point in points
    )
    if size > EXPANDED_BYTES_MAX:
        raise CodecError(f"the texts of the points come to {size} bytes: send fewer", "size")


def _origin_field(origins: Sequence[str]) -> list[Any]:
    numbers = {origin: number for number, origin in enumerate(dict.fromkeys(origins))}
    names = [require_name(origin, "origin") for origin in numbers]
    if len(names) > SERIES_MAX:
        raise CodecError(f"a frame holds at most {SERIES_MAX} origins", "name")
    return [names, _indices([numbers[origin] for origin in origins], len(names))]
