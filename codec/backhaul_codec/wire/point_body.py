"""Write and read the body of a point message: `[time, value, tombstone?, origin?]` in CBOR."""

from struct import Struct
from typing import Any

import cbor2

from backhaul_codec.errors import CodecError
from backhaul_codec.points import JSON, PROTOBUF, Opaque, Point, Value
from backhaul_codec.rules import plain_value, require_name, require_time, require_tombstone
from backhaul_codec.wire import cbor

JSON_TAG = 262
_DOUBLE = Struct(">d")


def write_point(point: Point) -> bytes:
    """Return the body of a point message. Raises: CodecError (`time`, `value`, `tombstone`, `name`)."""
    require_time(point.time)
    require_name(point.node, "node")
    require_name(point.type, "type")
    require_name(point.key, "key")
    parts = [cbor2.dumps(point.time), encode_value(point.value)]
    if point.tombstone or point.origin:
        parts.append(cbor2.dumps(require_tombstone(point.tombstone)))
    if point.origin:
        parts.append(cbor2.dumps(require_name(point.origin, "origin")))
    return bytes([0x80 | len(parts)]) + b"".join(parts)


def encode_value(value: Value) -> bytes:
    """Return a value's one CBOR form: the bytes by which a merge breaks a tie of times.

    Every float is kept bit for bit; integers go from -2**63 to 2**64 - 1; text and bytes have at
    most 1 MiB. Raises: CodecError (`value`), also for bool and None.
    """
    value = plain_value(value)
    if isinstance(value, float):
        return b"\xfb" + _DOUBLE.pack(value)  # cbor2 would make every NaN the same one
    if isinstance(value, Opaque):
        if value.dtype == JSON:
            return cbor2.dumps(cbor2.CBORTag(JSON_TAG, value.data))
        return cbor2.dumps([value.dtype, value.data])
    return cbor2.dumps(value)


def read_point(body: bytes) -> tuple[int, Value, int, str]:
    """Return time, value, tombstone and origin. Raises: CodecError."""
    items = cbor.load(body)
    if type(items) is not list or not 2 <= len(items) <= 4:
        raise CodecError("a point is an array of two to four items", "point")
    time, value, *rest = items
    tombstone = rest[0] if rest else 0
    origin = rest[1] if len(rest) > 1 else ""
    return (
        require_time(time),
        _read_value(value),
        require_tombstone(tombstone),
        require_name(origin, "origin"),
    )


def _read_value(item: Any) -> Value:
    if isinstance(item, cbor2.CBORTag):
        if item.tag != JSON_TAG:
            raise CodecError(f"a value has the unknown tag {item.tag}", "value")
        return plain_value(Opaque(JSON, item.value))
    if type(item) is list:
        if len(item) != 2 or type(item[0]) is not int or item[0] < PROTOBUF:
            raise CodecError("an opaque value is a dtype from 7 on and bytes", "value")
        return plain_value(Opaque(item[0], item[1]))
    return plain_value(item)
