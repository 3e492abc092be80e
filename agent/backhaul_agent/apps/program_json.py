"""Read the JSON that local programs send, or refuse it with a code for them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from backhaul_agent.errors import Code, RefusedError
from backhaul_codec.strict.json import JsonError

_T = TypeVar("_T")
_TIMES = dict.fromkeys(("time", "from", "to"), Code.BAD_TIME)
_FIELDS = {"time": Code.BAD_TIME, "value": Code.BAD_VALUE}


def read_program_json(read: Callable[[bytes], _T], data: bytes) -> _T:
    """Return the value that a reader of `strict_json` makes of a payload.

    Raises:
        RefusedError: it is no JSON, other JSON than the reader's, or a number in it has no place here.
    """
    try:
        return read(data)
    except JsonError as error:
        codes = {
            "number": _TIMES.get(error.field, Code.BAD_VALUE),
            "deep": Code.BAD_VALUE,
            "field": _FIELDS.get(error.field, Code.BAD_FIELD),
        }
        raise RefusedError(codes.get(error.code, Code.BAD_JSON), error.reason) from None
