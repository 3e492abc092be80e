"""Show values as JSON, read them from JSON, and read assignments from a command line.

The same rules on the vehicle and at the hub, and the same as for a JSON publish to `app.…`: without a
`dtype` a number is a float64, an integer that no float64 holds exactly (beyond 2**53) an int64, a string
is text. What JSON cannot say exactly (int64, bytes, NaN) carries its `dtype`;
`value_to_json` always gives it, so nothing is guessed on the way back.
"""

import binascii
import json
import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MIN, JSON, UINT64_MAX, Opaque, Value
from backhaul_codec.rules import plain_value, require_name
from backhaul_codec.strict.json import JsonError, read_json, write_exactly
from backhaul_codec.subjects import SubjectError, decode_token

_ODD_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_OPAQUE = "opaque"
FLOAT_EXACT_MAX = 1 << 53
DTYPES = ("float64", "int64", "text", "json", "bytes", f"{_OPAQUE}<7..255>")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Hold the parts of `node.type[.key][:dtype]=value`."""

    node: str
    type: str
    key: str
    value: Value


def value_to_json(value: Value) -> tuple[Any, str]:
    """Return a value as something that JSON can hold, and its dtype in words."""
    if isinstance(value, Opaque):
        if value.dtype != JSON:
            return b64encode(value.data).decode(), f"{_OPAQUE}{value.dtype}"
        try:
            return read_json(value.data), "json"
        except JsonError:
            # Nobody checks a writer's JSON on its way.
            return b64encode(value.data).decode(), f"{_OPAQUE}{JSON}"
    if isinstance(value, str):
        return value, "text"
    if isinstance(value, bytes):
        return b64encode(value).decode(), "bytes"
    if isinstance(value, int):
        return value, "int64"
    if math.isfinite(value):
        return value, "float64"
    return "NaN" if math.isnan(value) else ("-" if value < 0 else "") + "Infinity", "float64"


def read_sayable(data: bytes) -> Any:
    """Return a value of somebody else's JSON, such that it can be written again within other JSON.

    Half of a surrogate pair, which JSON may name and no UTF-8 can hold, becomes `?`.
    Raises: JsonError.
    """
    try:
        return read_json(data)
    except JsonError:
        if b"\\u" not in data:
            raise
    try:
        said = json.dumps(json.loads(data), ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}", "json") from None
    return read_json(said)


def value_from_json(value: Any, dtype: str | None = None) -> Value:
    """Return the value that JSON and a dtype mean. Raises: CodecError (`value`)."""
    if dtype is None:
        return _evident(value)
    if dtype == "float64":
        if isinstance(value, str) and value in _ODD_FLOATS:
            return _ODD_FLOATS[value]
        if type(value) in (int, float):
            return _float(value)
    elif dtype == "int64":
        if type(value) is int and INT64_MIN <= value <= UINT64_MAX:
            return value
    elif dtype == "text":
        if isinstance(value, str):
            return plain_value(value)
    elif dtype == "json":
        return plain_value(Opaque(JSON, write_exactly(value)))
    elif dtype == "bytes":
        return plain_value(_bytes(value))
    elif (number := _opaque_number(dtype)) is not None:
        return plain_value(Opaque(number, _bytes(value)))
    else:
        raise JsonError(f"dtype {dtype[:40]!r} is none of {', '.join(DTYPES)}", "field", "dtype")
    raise CodecError(f"{_shortly(value)} does not fit dtype {dtype}", "value")


def _evident(value: Any) -> Value:
    """Return the value that JSON means where nothing is said of its dtype."""
    if isinstance(value, str):
        return plain_value(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if -FLOAT_EXACT_MAX <= value <= FLOAT_EXACT_MAX:
            return float(value)
        if INT64_MIN <= value <= UINT64_MAX:
            return value
        raise CodecError(
            "an integer beyond int64 and uint64: write it as a decimal (1.5e30), to be the nearest float64,"
            " or in quotes, as text",
            "value",
        )
    if isinstance(value, float):
        return value
    names = {bool: "a boolean", dict: "an object", list: "a list", type(None): "a null"}
    raise CodecError(
        f"{names.get(type(value), 'this')} is no value: send a number or a string,"
        ' or say "dtype": "json"',
        "value",
    )


def _shortly(value: Any) -> str:
    """Return a value for people, who cannot use all of it; an integer may be too long to be written."""
    if isinstance(value, int) and not INT64_MIN <= value <= UINT64_MAX:
        return "an integer beyond int64 and uint64"
    return repr(str(value)[:40])


def parse_path(text: str) -> tuple[str, str, str]:
    """Read `node.type[.key]`, each percent-encoded as in a subject. Raises: CodecError (`name`)."""
    tokens = text.split(".")
    if not 2 <= len(tokens) <= 3:
        raise CodecError(
            f"{text!r} is not node.type[.key]; percent-encode a dot in a name as %2E", "name"
        )
    try:
        node, type_, key = [decode_token(token) for token in [*tokens, "%"][:3]]
    except SubjectError as error:
        raise CodecError(str(error), "name") from error
    for name, what in ((node, "node"), (type_, "type"), (key, "key")):
        require_name(name, what)
    if not node or not type_:
        raise CodecError(f"{text!r} has an empty node or type", "name")
    return node, type_, key


def parse_assignment(text: str) -> Assignment:
    """Read `node.type[.key][:dtype]=value` as a command line has it.

    Without a dtype: what reads as a JSON number is a float64 (beyond 2**53 an int64), what stands in double
    quotes is the text between them, an object or array is JSON, and anything else is text as it stands.
    Raises: CodecError.
    """
    path, equals, raw = text.partition("=")
    if not equals:
        raise CodecError(f"{text[:80]!r} is not node.type[.key]=value", "value")
    path, _, dtype = path.partition(":")
    node, type_, key = parse_path(path)
    return Assignment(node, type_, key, _read_value(raw, dtype or None))


def _read_value(raw: str, dtype: str | None) -> Value:
    if dtype in ("text", "bytes") or (dtype or "").startswith(_OPAQUE) or raw in _ODD_FLOATS:
        return value_from_json(raw, dtype or "float64")
    try:
        value = read_json(raw)
    except JsonError as error:
        if error.code != "json":  # it is JSON, and something of it would be lost
            raise
        if dtype is not None:
            raise CodecError(f"{raw[:40]!r} does not fit dtype {dtype}", "value") from None
        return plain_value(raw)
    if dtype is None and isinstance(value, dict | list):
        dtype = "json"
    elif dtype is None and (value is None or isinstance(value, bool)):
        return plain_value(raw)
    return value_from_json(value, dtype)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise CodecError("a number is beyond float64", "value") from error


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise CodecError("bytes are written in base64", "value")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError(f"no base64: {error}", "value") from error


def _opaque_number(dtype: str) -> int | None:
    digits = dtype.removeprefix(_OPAQUE)
    if digits == dtype or len(digits) > 3 or not digits.isascii() or not digits.isdigit():
        return None
    number = int(digits)
    # 6 is how a value that says it is JSON, and is none, comes back.
    return number if JSON <= number <= 255 else None
