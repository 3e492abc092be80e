"""Cut a range of time into as many buckets as a chart has pixels, and choose the rollup that fills them. Pure.

Edges of buckets are multiples of their width since 1970. So a chart that is moved shows the same figures, and
a window of a rollup, whose length divides the width, lies in one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from backhaul_spark.arrays import Ints

Level = Literal["point", "minute", "hour", "day"]

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
LEVELS_US: dict[Level, int] = {"day": DAY_US, "hour": HOUR_US, "minute": MINUTE_US}
WIDTHS: dict[Level, str] = {"day": "1d", "hour": "1h", "minute": "1m"}
"""By what the table of rollups names them."""
EARLIEST_US = 946_684_800_000_000
"""The year 2000: what says that it is older has no believable time."""


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The buckets of an answer: `count` of them, each `width_us` wide, from `start_us` on (µs since 1970)."""

    level: Level
    start_us: int
    width_us: int
    count: int

    @property
    def end_us(self) -> int:
        """Where the last bucket ends."""
        return self.start_us + self.count * self.width_us

    def buckets(self, times_us: Ints) -> Ints:
        """Return the bucket of each time; one that lies in none has a number below 0 or from `count` on.

        `times_us`: (n,) int64, us since 1970; the result is (n,) int64.
        """
        return np.asarray((times_us - self.start_us) // self.width_us)


def plan(from_us: int, to_us: int, points_max: int, finest: Level = "point") -> BucketPlan:
    """Return at most `points_max` buckets over a range, of the coarsest level that they need.

    Args:
        from_us: where it begins, µs since 1970.
        to_us: where it ends, after `from_us`.
        points_max: at least 2.
        finest: a level below which the answer shall not go.
    """
    # One bucket less: the range may begin in the middle of one.
    width = max(1, -(-(to_us - from_us) // (points_max - 1)))
    for level, length in LEVELS_US.items():
        if width >= length or level == finest:
            return _plan(level, from_us, to_us, -(-width // length) * length)
    return _plan("point", from_us, to_us, width)


def _plan(level: Level, from_us: int, to_us: int, width_us: int) -> BucketPlan:
    start_us = from_us // width_us * width_us
    return BucketPlan(level, start_us, width_us, -(-(to_us - start_us) // width_us))
