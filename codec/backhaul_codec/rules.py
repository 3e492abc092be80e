"""Refuse values that the wire format does not allow, alike when writing and when reading."""

from typing import Any

from backhaul_codec.errors import CodecError
from backhaul_codec.points import (
    INT64_MAX,
    INT64_MIN,
    JSON,
    NAME_BYTES_MAX,
    UINT64_MAX,
    VALUE_BYTES_MAX,
    Opaque,
    Value,
)


def plain_value(value: Any) -> Value:
    """Return the value as exactly one of the five types. Raises: CodecError (`value`)."""
    if isinstance(value, bool):
        raise CodecError("bool is not a value: say 0 or 1", "value")
    if isinstance(value, float):
        return value if type(value) is float else float(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= UINT64_MAX:
            raise CodecError("an integer is outside -2**63 .. 2**64 - 1", "value")
        return int(value)
    if isinstance(value, str):
        require_size(len(utf8(value)))
        return str(value)
    if isinstance(value, bytes):
        require_size(len(value))
        return bytes(value)
    if isinstance(value, Opaque):
        return _plain_opaque(value)
    raise CodecError(f"{type(value).__name__} is not a type of value", "value")


def _plain_opaque(value: Opaque) -> Opaque:
    dtype, data = value.dtype, value.data
    if type(dtype) is not int or not JSON <= dtype <= 255:
        raise CodecError("the dtype of an opaque value is outside 6..255", "value")
    if not isinstance(data, bytes):
        raise CodecError("an opaque value holds bytes", "value")
    require_size(len(data))
    if dtype == JSON:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise CodecError("a JSON value is not UTF-8", "value") from error
    return value


def blob_size(value: Value) -> int:
    """Return the bytes of a text, byte string or opaque value; 0 for a number."""
    if isinstance(value, str):
        return len(utf8(value))
    if isinstance(value, Opaque):
        return len(value.data)
    return len(value) if isinstance(value, bytes) else 0


def utf8(text: str) -> bytes:
    """Return text as UTF-8. Raises: CodecError (`value`) for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CodecError("a text has a lone surrogate and no UTF-8 form", "value") from error


def require_size(size_bytes: int) -> None:
    """Refuse a value longer than VALUE_BYTES_MAX."""
    if size_bytes > VALUE_BYTES_MAX:
        raise CodecError(
            f"a value of {size_bytes} bytes is over the limit of {VALUE_BYTES_MAX}", "value"
        )


def require_time(time: Any) -> int:
    """Refuse a time that is not an int64 of nanoseconds."""
    if type(time) is not int or not INT64_MIN <= time <= INT64_MAX:
        raise CodecError("a time is not an int64 of nanoseconds", "time")
    return time


def require_tombstone(tombstone: Any) -> int:
    """Refuse a tombstone outside 0..255."""
    if type(tombstone) is not int or not 0 <= tombstone <= 255:
        raise CodecError("a tombstone is not an integer in 0..255", "tombstone")
    return tombstone


def require_name(name: Any, what: str) -> str:
    """Refuse a node, type, key or origin that is not text of at most NAME_BYTES_MAX."""
    if not isinstance(name, str):
        raise CodecError(f"a {what} is not text", "name")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise CodecError(f"a {what} has a lone surrogate and no UTF-8 form", "name") from error
    if size > NAME_BYTES_MAX:
        raise CodecError(f"a {what} of {size} bytes is over {NAME_BYTES_MAX}", "name")
    return name
