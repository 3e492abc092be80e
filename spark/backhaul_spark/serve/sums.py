"""The contents of a chart. Pure.

Of numbers the least, the greatest and how many there are in each bucket: no peak is lost, none is counted twice. Of
texts from when to when a series had the same one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backhaul_spark.arrays import Floats, Ints
from backhaul_spark.serve.plan import BucketPlan

_GREATEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a chart: `times_us` (int64), `least` and `greatest` (float64) and `counts` (int64), all (n,).

    `width_us`: of each bucket, which begins at its time; 0: these are readings themselves.
    """

    times_us: Ints
    least: Floats
    greatest: Floats
    counts: Ints
    width_us: int


class Sums:
    """Takes readings, and windows that sum up others, in any order.

    Args:
        plan: the buckets. What lies in none of them is left out.
        readings_max: up to so many readings are shown as they are, where no window is among them.
    """

    def __init__(self, plan: BucketPlan, readings_max: int) -> None:
        self._plan = plan
        self._least = np.full(plan.count, np.inf)
        self._greatest = np.full(plan.count, -np.inf)
        self._counts = np.zeros(plan.count, np.int64)
        self._readings: list[tuple[Ints, Floats]] | None = []
        self._left = readings_max

    @property
    def count(self) -> int:
        """How many readings there are in all buckets."""
        return int(self._counts.sum())

    def add_readings(self, times_us: Ints, values: Floats) -> None:
        """Take readings: times (n,) int64, values (n,) float64, none of them NaN."""
        bucket = self._plan.buckets(times_us)
        inside = (bucket >= 0) & (bucket < self._plan.count)
        times_us, values, bucket = times_us[inside], values[inside], bucket[inside]
        np.minimum.at(self._least, bucket, values)
        np.maximum.at(self._greatest, bucket, values)
        self._counts += np.bincount(bucket, minlength=self._plan.count)
        if self._readings is not None and len(times_us):
            self._readings.append((times_us, values))
            self._left -= len(times_us)
            if self._left < 0:
                self._readings = None

    def add_windows(self, starts_us: Ints, least: Floats, greatest: Floats, counts: Ints) -> None:
        """Take windows, each of at least one reading, and inside of one bucket.

        `starts_us`: int64, us since 1970. `least` and `greatest`: float64, in the unit of the series.
        `counts`: int64. All are (n,).
        """
        bucket = self._plan.buckets(starts_us)
        inside = (bucket >= 0) & (bucket < self._plan.count)
        bucket = bucket[inside]
        np.minimum.at(self._least, bucket, least[inside])
        np.maximum.at(self._greatest, bucket, greatest[inside])
        np.add.at(self._counts, bucket, counts[inside])
        if len(bucket):
            self._readings = None

    def shown(self) -> Shown:
        """Return the readings where they are few, else the buckets that have any; by time."""
        if self._readings:
            times = np.concatenate([each for each, _ in self._readings])
            values = _finite(np.concatenate([each for _, each in self._readings]))
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
            return Shown(times, values, values, np.ones(len(times), np.int64), 0)
        there = np.flatnonzero(self._counts)
        return Shown(
            self._plan.start_us + there * self._plan.width_us,
            _finite(self._least[there]),
            _finite(self._greatest[there]),
            self._counts[there],
            self._plan.width_us,
        )


def _finite(values: Floats) -> Floats:
    """JSON has no infinity: the greatest double stands for it, as in the tables' statistics."""
    return np.clip(values, -_GREATEST, _GREATEST)


TEXT_MAX = 200
"""Of a longer text so many characters are told."""
READINGS_MAX = 200_000
"""That are held in memory: the first and the last of each run."""


class TextRun(NamedTuple):
    """The same text from its first reading to its last (µs since 1970, both included)."""

    from_us: int
    to_us: int
    value: str


class TextRuns:
    """Takes texts in several orders of time: each call of `add` has one of its own."""

    def __init__(self) -> None:
        self._readings: list[tuple[int, str]] = []
        self.left_out = 0
        """Readings beyond those that are held."""

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Take texts with their times (µs since 1970), ascending."""
        held, begins = self._readings, len(self._readings)
        for at_us, text in texts:
            value = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
            if len(held) - begins >= 2 and held[-1][1] == held[-2][1] == value:
                held[-1] = at_us, value  # inside of a run nothing is to be known
            elif len(held) < READINGS_MAX:
                held.append((at_us, value))
            else:
                self.left_out += 1

    def shown(self, runs_max: int) -> tuple[list[TextRun], int]:
        """Return at most so many runs by time, the longest of them; and how many are not among them."""
        runs: list[TextRun] = []
        for at_us, value in sorted(self._readings, key=lambda reading: reading[0]):
            if runs and runs[-1].value == value:
                runs[-1] = runs[-1]._replace(to_us=at_us)
            else:
                runs.append(TextRun(at_us, at_us, value))
        longest = sorted(runs, key=lambda run: run.from_us - run.to_us)[:runs_max]
        return sorted(longest), len(runs) - len(longest) + self.left_out
