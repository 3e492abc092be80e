"""Say of each reading of one series how unusual it is, from those before it. Pure, one pass.

The reading, and the mean of the last few, are compared with what is usual at this hour of the day
(the median). Each distance is divided by the one that 1 reading in 250 exceeds, so that a series
that often jumps must jump further. The mean of both is the score. What goes on is not news: a
score counts only as far as it tops those just before. State: some 27 quantiles of ten numbers
each, whatever comes (docs/detector.md says how well it does).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backhaul_spark.detect.quantile import Quantile

_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Tuning:
    """The constants. They were chosen on half of NAB's files; the threshold likewise.

    `recent`: readings in the mean of the last few. `usual_share`: of the readings, those
    nearer than one unit of the score. `memory`: readings that quantiles look back on.
    `habit`: readings after which a score has faded to 1/e. `learning`: readings before the first
    score. `score_max`: no single reading counts for more.
    """

    recent: int = 12
    usual_share: float = 0.996
    memory: int = 10_000
    habit: int = 100
    learning: int = 100
    score_max: float = 10.0


DEFAULT = Tuning()


class Judgement(NamedTuple):
    """The detector's verdict on one reading: `score`, and the value that it took for usual."""

    score: float
    usual: float


class Distance:
    """One kind of distance from the usual, in units of how far it mostly stays below."""

    __slots__ = ("_limit", "_score_max")

    def __init__(self, tuning: Tuning) -> None:
        self._limit = Quantile(tuning.usual_share, tuning.memory)
        self._score_max = tuning.score_max

    def score(self, distance: float) -> float:
        """Return a distance in these units, and remember it."""
        limit = self._limit.value
        self._limit.add(distance)
        if distance <= 0:
            return 0.0
        return min(distance / limit, self._score_max) if limit > 0 else self._score_max


class Detector:
    """Judge the readings of one series in the order of their time.

    Pickles small, so that a streaming job can keep one for each series.
    """

    def __init__(self, tuning: Tuning = DEFAULT) -> None:
        self._tuning = tuning
        self._recent: deque[float] = deque(maxlen=tuning.recent)
        self._hours = [Quantile(0.5, tuning.memory) for _ in range(24)]
        self._day = Quantile(0.5, tuning.memory)
        self._distances = (Distance(tuning), Distance(tuning))
        self._fading = 1 - 1 / tuning.habit
        self._habit = 0.0
        self._seen = 0

    def judge(self, time_ns: int, value: float) -> Judgement:
        """Say how unusual a reading is: score 0 not at all, from about 1 on remarkable.

        Values that are not finite are passed over with 0.
        """
        if not math.isfinite(value):
            return Judgement(0.0, value)
        self._recent.append(value)
        mean = sum(self._recent) / len(self._recent)
        usual = self._usual(time_ns // _HOUR_NS % 24, mean)
        both = zip(self._distances, (value, mean), strict=True)
        raw = sum(distance.score(abs(number - usual)) for distance, number in both) / 2
        self._seen += 1
        if self._seen <= self._tuning.learning:
            return Judgement(0.0, usual)
        news = raw if raw > self._habit else 0.0
        self._habit = max(self._habit, raw) * self._fading
        return Judgement(news, usual)

    def scores(
        self, times_ns: Iterable[int], values: Iterable[float]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the scores of some readings; the same however they are cut into calls."""
        pairs = zip(times_ns, values, strict=True)
        return np.array([self.judge(time_ns, value).score for time_ns, value in pairs], dtype=float)

    def _usual(self, hour: int, mean: float) -> float:
        """Return the usual value at an hour of the day (of the whole day, while that is new)."""
        here = self._hours[hour]
        known = here if here.count >= self._tuning.recent else self._day
        usual = known.value if known.count else mean
        here.add(mean)
        self._day.add(mean)
        return usual
