"""Messages of Sparkplug B 3.0: those fields of its published protobuf schema that a gateway's data need. Pure.

Payload: timestamp = 1, metrics = 2, seq = 3. Metric: name = 1, alias = 2, timestamp = 3, datatype = 4,
long_value = 11, float_value = 12, double_value = 13, string_value = 15. As the specification has it,
each metric has its timestamp, and after the birth message an alias in place of name and datatype.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import pack, unpack
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5

MetricValue: TypeAlias = float | int | str


class SparkplugError(Exception):
    """What came is no payload with these fields."""


class DataType(IntEnum):
    """The numbers of the data types."""

    INT64 = 4
    FLOAT = 9
    DOUBLE = 10
    STRING = 12


@dataclass(frozen=True, slots=True)
class Metric:
    """One value. `name` and `datatype` are in the birth message, `alias` stands for them afterwards."""

    value: MetricValue
    time_ms: int
    alias: int | None = None
    name: str = ""
    datatype: DataType | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """One message."""

    time_ms: int
    seq: int
    metrics: list[Metric]


def encode(payload: Payload) -> bytes:
    """Return the bytes of a payload."""
    parts = [_number(1, payload.time_ms)]
    parts += [_bytes(2, _metric(metric)) for metric in payload.metrics]
    return b"".join([*parts, _number(3, payload.seq)])


def decode(body: bytes) -> Payload:
    """Return the payload that bytes hold.

    Raises:
        SparkplugError: they hold none.
    """
    time_ms = seq = 0
    metrics = []
    for field, value in _fields(body):
        match field, value:
            case 1, int():
                time_ms = value
            case 2, bytes():
                metrics.append(_read_metric(value))
            case 3, int():
                seq = value
    return Payload(time_ms, seq, metrics)


def _metric(metric: Metric) -> bytes:
    parts = [_bytes(1, metric.name.encode())] if metric.name else []
    if metric.alias is not None:
        parts.append(_number(2, metric.alias))
    parts.append(_number(3, metric.time_ms))
    if metric.datatype is not None:
        parts.append(_number(4, metric.datatype))
    parts.append(_value(metric.value))
    return b"".join(parts)


def _value(value: MetricValue) -> bytes:
    if isinstance(value, str):
        return _bytes(15, value.encode())
    if isinstance(value, int):
        return _number(11, value & 0xFFFF_FFFF_FFFF_FFFF)
    # A reading with one decimal loses nothing in a float32: it is rounded as its sensor rounds.
    if abs(value) < 100_000 and round(value, 1) == value:
        return _tag(12, _FOUR_BYTES) + pack("<f", value)
    return _tag(13, _EIGHT_BYTES) + pack("<d", value)


def _read_metric(body: bytes) -> Metric:
    alias: int | None = None
    datatype: DataType | None = None
    time_ms, name = 0, ""
    found: MetricValue | None = None
    for field, value in _fields(body):
        match field, value:
            case 1, bytes():
                name = value.decode()
            case 2, int():
                alias = value
            case 3, int():
                time_ms = value
            case 4, int():
                datatype = DataType(value)
            case 11, int():
                found = value - (value >> 63 << 64)
            case 12, bytes():
                found = round(float(unpack("<f", value)[0]), 1)
            case 13, bytes():
                found = float(unpack("<d", value)[0])
            case 15, bytes():
                found = value.decode()
    if found is None:
        raise SparkplugError("a metric has no value")
    return Metric(found, time_ms, alias, name, datatype)


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(body):
        tag, at = _read_varint(body, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            number, at = _read_varint(body, at)
            yield field, number
            continue
        size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire, 0)
        if wire == _BYTES:
            size, at = _read_varint(body, at)
        elif not size:
            raise SparkplugError(f"field {field} has wire type {wire}")
        if at + size > len(body):
            raise SparkplugError("it is cut short")
        yield field, body[at : at + size]
        at += size


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(body):
        number |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return number, at
    raise SparkplugError("it is cut short")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, number: int) -> bytes:
    return _tag(field, _VARINT) + _varint(number)


def _bytes(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(content)) + content


def birth(names: Iterable[str], time_ms: int) -> Payload:
    """Return the birth message of a device whose metrics get the aliases 0, 1, 2 ... in this order."""
    metrics = [
        Metric(0.0, time_ms, alias, name, DataType.FLOAT) for alias, name in enumerate(names)
    ]
    return Payload(time_ms, 0, metrics)
