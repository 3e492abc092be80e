"""Read TOML that somebody wrote by hand, or refuse it with the reason, never with a traceback."""

import math
import tomllib
from typing import Any

from backhaul_codec.points import INT64_MAX, INT64_MIN


class TomlError(ValueError):
    """Say why a text cannot be taken as TOML."""


def read_toml(text: str, *, finite: bool = True) -> dict[str, Any]:
    """Return the contents of TOML; every number in it fits 64 bits, and is finite.

    A limit that is nan passes every comparison. Who says so himself, with more words, takes other
    numbers with `finite=False` (`toml_values.odd_values`).

    Raises: TomlError.
    """
    try:
        said = tomllib.loads(text)
        _check(said, "", finite=finite)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None
    except RecursionError:
        raise TomlError("lists and tables in it, too many levels deep") from None
    except ValueError as error:
        # Python reads no integer of over 4300 digits, and says so in words of its own.
        raise error if isinstance(error, TomlError) else TomlError(f"a number: {error}") from None
    return said


def _check(said: Any, place: str, *, finite: bool) -> None:
    if isinstance(said, dict):
        for name, value in said.items():
            _check(value, f"{place}.{name}" if place else name, finite=finite)
    elif isinstance(said, list):
        for value in said:
            _check(value, place, finite=finite)
    elif finite and isinstance(said, float) and not math.isfinite(said):
        raise TomlError(f"{place} is {said}: write a finite number")
    elif type(said) is int and not INT64_MIN <= said <= INT64_MAX:
        raise TomlError(f"{place} is beyond 64 bits: write a smaller number")
