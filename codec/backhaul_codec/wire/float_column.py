"""Find the cheapest column that gives a series of doubles back bit for bit.

Most readings are decimals that a sensor or a program rounded: 81.2 is the integer 812 with
exponent 1. As integers their differences are small, and small integers are what deflate shortens.
"""

from __future__ import annotations

from array import array
from itertools import compress, repeat
from operator import mul, ne, truediv
from typing import NamedTuple

from backhaul_codec.wire.frame_fields import POWERS

# A double holds 15 decimal digits of any number: with more behind the point it was no decimal.
_DECIMALS_MAX = 15
_SCALED_MAX = 2.0**62


class Integers(NamedTuple):
    """Hold a series as integers: a value is float(number) / 10**exponent."""

    exponent: int
    numbers: list[int]


def scale(values: list[float]) -> Integers | None:
    """Return finite doubles as scaled integers, or None where dividing would not give them back."""
    exact = array("d", values).tobytes()
    low, high = min(values), max(values)
    exponent = _decimals(values[-1])
    while exponent <= _DECIMALS_MAX:
        power = POWERS[exponent]
        if high * power > _SCALED_MAX or low * power < -_SCALED_MAX:
            return None
        numbers = list(map(round, map(mul, values, repeat(power))))
        back = array("d", map(truediv, numbers, repeat(power)))
        if back.tobytes() == exact:
            return Integers(exponent, numbers)
        # The first value that did not come back says how many decimals it needs. One that needs
        # no more than it had (-0.0, or too many digits) will never come back.
        needed = _decimals(next(compress(values, map(ne, values, back)), 0.0))
        if needed <= exponent:
            return None
        exponent = needed
    return None


def as_float32(values: list[float]) -> array[float] | None:
    """Return doubles as float32, or None where a bit would be lost."""
    narrow = array("f", values)
    return narrow if array("d", narrow).tobytes() == array("d", values).tobytes() else None


def _decimals(value: float) -> int:
    """Count the digits behind the point in the shortest text that reads back as the value."""
    mantissa, _, exponent = repr(value).partition("e")
    fraction = mantissa.partition(".")[2]
    digits = 0 if fraction == "0" else len(fraction)
    return max(0, digits - int(exponent or 0))
