"""Read JSON that somebody else wrote: every number as it was meant, or the whole of it refused with the reason.

Integers are exact, decimals the nearest float64. Refused is what most readers let pass in silence: a name
that stands twice in an object, a number that no float64 or no 64 bits hold, NaN and Infinity (which are no
JSON), more levels than can be written again. Bytes in, never a traceback out.
"""

import json
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MIN, UINT64_MAX

LEVELS_MAX = 100
_TOO_DEEP = f"lists and objects in it, more than {LEVELS_MAX} levels deep"
_LOOK_BYTES_MAX = 1024
_FLOAT_DIGITS_MAX = 308
_T = TypeVar("_T")
_decode = msgspec.json.Decoder().decode
# Every string of a text that is JSON, names too.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MINUS_ZERO = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|(?<![eE])-0(?![0-9.eE])', re.DOTALL)
_CONSTANTS = re.compile(rb"\b(?:NaN|Infinity|nan|inf(?:inity)?)\b")


class JsonError(CodecError, ValueError):
    """Say why JSON cannot be taken.

    `code`: `json` where it is none; `deep`; `names` where one stands in an object twice; `number` where one
    in it is beyond what is taken; `field` where it is other JSON than was asked for, and `field` names the
    place of that, where it has one.
    """

    def __init__(self, reason: str, code: str, field: str = "") -> None:
        super().__init__(reason, code)
        self.field = field


class Reader(Generic[_T]):
    """Reads JSON of one type of msgspec's; make one and keep it."""

    def __init__(self, type_: type[_T]) -> None:
        self._decode = msgspec.json.Decoder(type_).decode

    def read(self, data: bytes | str) -> _T:
        """Return the value of JSON. Raises: JsonError."""
        read_json(data)
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            _refuse(data, error)


def read_json(data: bytes | str) -> Any:
    """Return the value of JSON, as dict, list, str, int, float, bool or None. Raises: JsonError."""
    try:
        if isinstance(data, str):
            data = data.encode()
        said = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        _refuse(data, error)
    kind = type(said)
    if kind is float or kind is str:
        return said
    # What stands twice in an object is lost on the way: then the text has more strings than were found.
    # Nearly always its quotes tell; where some of them are escaped, it is taken apart.
    try:
        if kind is dict:
            found = len(said) + _checked(said.values(), LEVELS_MAX)
        else:
            found = _checked((said,), LEVELS_MAX + 1)
    except JsonError as error:
        error.field = _too_long_in(said)
        raise
    if data.count(b'"') != 2 * found and len(_STRINGS.findall(data)) != found:
        _refuse_names(data)
    return said


def read_typed(data: bytes | str, type_: type[_T]) -> _T:
    """Return the value of JSON, as a type of msgspec's. Raises: JsonError."""
    kept: Any = type_  # which can be hashed, other than mypy says
    reader: Reader[_T] = _reader(kept)
    return reader.read(data)


@lru_cache(256)
def _reader(type_: Any) -> Any:
    return Reader(type_)


def write_json(said: Any) -> bytes:
    """Return compact JSON of a value that `read_json` returned."""
    return msgspec.json.encode(said)


def write_exactly(said: Any) -> bytes:
    """Return compact JSON of a program's value, NaN and infinities refused. Raises: JsonError.

    Other writers make null of them.
    """
    try:
        text = json.dumps(said, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise JsonError(f"no JSON: {error}", "json") from error


def with_minus_zero(data: bytes) -> bytes:
    """Return JSON in which every integer -0, which no integer can be, is a decimal: -0.0."""
    return _MINUS_ZERO.sub(lambda found: found[1] or b"-0.0", data)


def _checked(several: Iterable[Any], levels: int) -> int:
    """Return how many names and strings there are in some values, at all levels. Raises: JsonError."""
    if not levels:
        raise JsonError(_TOO_DEEP, "deep")
    strings = 0
    for said in several:
        kind = type(said)
        if kind is str:
            strings += 1
        elif kind is int:
            if not INT64_MIN <= said <= UINT64_MAX:
                raise _too_long(len(str(abs(said))))
        elif kind is dict:
            strings += len(said) + _checked(said.values(), levels - 1)
        elif kind is list:
            strings += _checked(said, levels - 1)
    return strings


def _too_long_in(said: Any) -> str:
    """Return the field of an object that holds an integer beyond 64 bits, "" where none does."""
    fields = said.items() if isinstance(said, dict) else ()
    beyond = (
        name for name, each in fields if type(each) is int and not INT64_MIN <= each <= UINT64_MAX
    )
    return next(beyond, "")


def _too_long(digits: int) -> JsonError:
    """Return the error of an integer of so many digits, or more."""
    if digits > _FLOAT_DIGITS_MAX:
        where, what = "beyond float64 too", "write it in quotes, as text"
    else:
        where = "beyond int64 and uint64"
        what = "write it as a decimal (1.5e30), to be the nearest float64, or in quotes, as text"
    return JsonError(f"an integer of {digits} digits is out of range, {where}: {what}", "number")


def _refuse(data: bytes | str, error: Exception) -> NoReturn:
    """Raise a JsonError for an error of msgspec's."""
    text = str(error)
    if isinstance(error, RecursionError):
        raise JsonError(_TOO_DEEP, "deep") from None
    if text.startswith("Integer value out of range"):
        raise _too_long(sys.get_int_max_str_digits()) from None
    if text.startswith("Number out of range"):
        place = text.rpartition("`$.")[2].rstrip("`") if "`$." in text else ""
        raise JsonError(
            "a number out of range: a float64 goes to 1.8e308. Write it in quotes, as text",
            "number",
            place,
        ) from None
    if isinstance(error, msgspec.ValidationError):
        place = text.rpartition("$.")[2].rstrip("`") if "$." in text else ""
        raise JsonError(text.replace("$.", ""), "field", place) from None
    if isinstance(error, UnicodeError):
        raise JsonError(f"not JSON: no UTF-8 ({error})", "json") from None
    if not isinstance(data, bytes):
        raise JsonError(f"not JSON: {text}", "json") from None
    if found := _CONSTANTS.search(_STRINGS.sub(b"", data[:_LOOK_BYTES_MAX])):
        raise JsonError(
            f"not JSON: {found[0].decode()} is no number of JSON; leave the reading out,"
            ' or say "NaN", "Infinity" with "dtype": "float64"',
            "json",
        ) from None
    if text == "Input data was truncated" and rb"\u" in data:
        text += ", or half of a surrogate pair stands in it"
    raise JsonError(f"not JSON: {text}", "json") from None


def _refuse_names(data: bytes) -> NoReturn:
    """Raise, with the name that stands twice in an object."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        known = set()
        for name, _ in pairs:
            if name in known:
                raise JsonError(f"{name[:80]!r} is in it twice, in one object", "names")
            known.add(name)

    json.JSONDecoder(object_pairs_hook=look).decode(data.decode())
    raise JsonError("a name is in it twice, in one object", "names")
