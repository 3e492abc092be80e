"""Readings that are numbered: series and stamp of each say which it is, so they can be counted again."""

from __future__ import annotations

import math

from backhaul_codec import Point

NODE = "battery"
# Read together in one sampling pass, so they share a stamp, as sensors on a bus do.
SERIES = ("soc", "voltage", "current", "temp", "power", "speed", "odometer", "range")
FIRST_NS = 1_750_000_000_000_000_000
PASS_NS = 100_000_000


def point(number: int) -> Point:
    """Return reading `number`: its series and stamp say which it is (see `StreamTally`)."""
    sampling_pass, series = divmod(number, len(SERIES))
    value = round(50 + 30 * math.sin(sampling_pass / 40 + series), 1)
    return Point(NODE, SERIES[series], FIRST_NS + sampling_pass * PASS_NS, value)


def points(count: int, first: int = 0) -> list[Point]:
    """Return readings `first` to `first + count - 1`."""
    return [point(number) for number in range(first, first + count)]
