"""Say of each reading of one series how unusual it is, from those before it. Pure, one pass.

Four things are watched: how far the reading, and the means of the last 12 and 24, lie from what is usual at this
hour of the day; how far it lies beyond everything seen; whether the last 48 scatter as is usual at this hour;
whether their shape was seen before. Each distance becomes a rarity, from how far such distances mostly go in
this series; the score is the weighted mean. What goes on is not news: a score counts only where it tops
those just before (docs/detector.md says how well it does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backhaul_spark.arrays import Floats
from backhaul_spark.detect import quantile
from backhaul_spark.detect.quantile import Quantile
from backhaul_spark.detect.shapes import Courses

_HOUR_NS = 3_600_000_000_000
HOURS = 24
# Of what the score is made.
WORDS = (
    "far from what is usual at this hour",
    "beyond everything before",
    "scatters otherwise than usual at this hour",
    "in a shape not seen before",
)
LEVEL, BEYOND, SCATTER, SHAPE = range(len(WORDS))
# Readings of an hour of the day from which on its own median counts; of a series, from which on its reach does.
_HOUR_KNOWN, _REACH_KNOWN = 12, 50
# A distance so many times the low quantile: nothing like it is usual, and the quantile an estimate of none.
_NOTHING = 1e6


@dataclass(frozen=True, slots=True)
class Tuning:
    """The constants. The default ones were chosen on all of NAB's files, as those of its scoreboard were.

    docs/detector.md says how well constants do that were chosen on one half of them, on the other.

    `means`: readings in the means that are compared with the hour's. `scatter`: readings whose deviation is. `weights`:
    of each mean, of reach, scatter and each shape. `courses`: readings in a mean of each shape. `low`, `high`: shares of the distances between which their tail
    is measured. `memory`: readings that quantiles look back on. `learning`: readings before the first score. `rest`, `fade`: after
    a peak, so many readings its score stands, then falls to 1/e in so many. `over`: news tops it so many times. `rarity_max`: no
    single distance counts for more; powers of ten.
    """

    means: tuple[int, ...] = (1, 12, 24)
    scatter: int = 48
    courses: tuple[int, ...] = (6, 12)
    weights: tuple[float, ...] = (2.0, 3.0, 0.0, 3.0, 2.0, 2.0, 1.0)
    low: float = 0.9
    high: float = 0.996
    memory: int = 10_000
    learning: int = 100
    rest: int = 100
    fade: int = 50
    over: float = 1.1
    rarity_max: float = 6.0


DEFAULT = Tuning()
# What a search on one half of NAB's files alone finds.
FIRST_HALF = Tuning(weights=(3.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0), rest=75, fade=100, over=1.15)
SECOND_HALF = Tuning(weights=(1.0, 1.0, 3.0, 3.0, 2.0, 1.0, 2.0), rest=50, fade=100, over=1.2)


class Judgement(NamedTuple):
    """The detector's verdict on one reading.

    `score`: 0 is nothing, 6 the most. `usual`: the value that it took for usual. `parts`: of each of WORDS, its
    share in the score, together 1; all 0 with score 0.
    """

    score: float
    usual: float
    parts: tuple[float, ...] = (0.0,) * len(WORDS)


class Rarity:
    """One kind of distance, as a power of ten: of so many readings, one is so far out."""

    __slots__ = ("_high", "_low", "_most", "_steps")

    def __init__(self, tuning: Tuning) -> None:
        self._low = Quantile(tuning.low, tuning.memory)
        self._high = Quantile(tuning.high, tuning.memory)
        self._steps = -math.log10(1 - tuning.low), math.log10((1 - tuning.low) / (1 - tuning.high))
        self._most = tuning.rarity_max

    def of(self, distance: float) -> float:
        """Return the rarity of a distance, 0 for an ordinary one, and remember it.

        The tail is taken for exponential, of the slope between the two quantiles.
        """
        low, high = self._low.value, self._high.value
        self._low.add(distance)
        self._high.add(distance)
        if distance <= 0 or distance <= low:
            return 0.0
        if distance >= _NOTHING * low:
            return self._most
        first, step = self._steps
        slope = max(high / low, 1.02) - 1
        return min(first + step * (distance / low - 1) / slope, self._most)

    def quantiles(self) -> tuple[Quantile, Quantile]:
        """Return the state."""
        return self._low, self._high


class Usual:
    """The median of a number at each hour of the day, and of the whole day while an hour is new."""

    __slots__ = ("day", "hours")

    def __init__(self, tuning: Tuning) -> None:
        self.hours = [Quantile(0.5, tuning.memory) for _ in range(HOURS)]
        self.day = Quantile(0.5, tuning.memory)

    def before(self, hour: int, number: float) -> float:
        """Return the usual one at an hour (the number itself, if there was none), and remember this one."""
        here = self.hours[hour]
        known = here if here.count >= _HOUR_KNOWN else self.day
        usual = known.value if known.count else number
        here.add(number)
        self.day.add(number)
        return usual


class Detector:
    """Judge the readings of one series in the order of their time.

    Packs into FLOATS numbers, so that a streaming job can keep one for each series.
    """

    def __init__(self, tuning: Tuning = DEFAULT) -> None:
        self._tuning = tuning
        self._recent: list[float] = []
        self._levels = [Usual(tuning) for _ in tuning.means]
        self._scatter = Usual(tuning)
        self._rarities = [Rarity(tuning) for _ in tuning.weights]
        self._shapes = [Courses(readings) for readings in tuning.courses]
        self._fading = 1 - 1 / tuning.fade
        self._weight = sum(tuning.weights)
        self._reach = [0.0, 0.0]  # the least and the greatest so far
        self._peak, self._rest, self._seen = 0.0, 0, 0

    def judge(self, time_ns: int, value: float) -> Judgement:
        """Say how unusual a reading is. Values that are not finite are passed over with 0."""
        if not math.isfinite(value):
            return Judgement(0.0, value)
        distances, usual = self._distances(time_ns // _HOUR_NS % HOURS, value)
        rarities = [
            weight * rarity.of(distance)
            for weight, rarity, distance in zip(
                self._tuning.weights, self._rarities, distances, strict=True
            )
        ]
        raw = sum(rarities) / self._weight
        self._seen += 1
        if not self._is_news(raw):
            return Judgement(0.0, usual)
        levels = len(self._tuning.means)
        beyond, scatter, *shapes = rarities[levels:]
        parts = (sum(rarities[:levels]), beyond, scatter, sum(shapes))
        total = sum(parts)
        return Judgement(raw, usual, tuple(part / total for part in parts))

    def scores(self, times_ns: Iterable[int], values: Iterable[float]) -> Floats:
        """Return the scores of some readings; the same however they are cut into calls."""
        pairs = zip(times_ns, values, strict=True)
        return np.array([self.judge(time_ns, value).score for time_ns, value in pairs], dtype=float)

    def _is_news(self, raw: float) -> bool:
        """Say whether a score tops those just before, and remember it."""
        news = raw > self._peak * self._tuning.over and self._seen > self._tuning.learning
        if raw >= self._peak:
            self._peak, self._rest = raw, self._tuning.rest
        elif self._rest > 0:
            self._rest -= 1
        else:
            self._peak *= self._fading
        return news

    def _distances(self, hour: int, value: float) -> tuple[list[float], float]:
        """Return the distance of each kind, and the value that is usual now."""
        recent = self._recent
        recent.append(value)
        del recent[: -self._tuning.scatter]
        means = [sum(recent[-count:]) / len(recent[-count:]) for count in self._tuning.means]
        usual = [one.before(hour, mean) for one, mean in zip(self._levels, means, strict=True)]
        least, most = self._reach if self._seen else (value, value)
        beyond = max(value - most, least - value, 0.0)
        beyond = beyond / (most - least) if most > least and self._seen >= _REACH_KNOWN else 0.0
        self._reach = [min(least, value), max(most, value)]
        width = self._reach[1] - self._reach[0]
        middle = sum(recent) / len(recent)
        deviation = math.sqrt(sum((one - middle) * (one - middle) for one in recent) / len(recent))
        scatter = math.log(deviation + 1e-3 * width + 1e-12)
        distances = [abs(mean - one) for mean, one in zip(means, usual, strict=True)]
        distances += [beyond, abs(scatter - self._scatter.before(hour, scatter))]
        distances += [shapes.distance(value, width) for shapes in self._shapes]
        return distances, usual[0]

    def pack(self) -> Floats:
        """Return the state, (floats_of(tuning),) float64, of which `unpack` makes the same."""
        numbers = [*self._reach, self._peak, self._rest, self._seen, len(self._recent)]
        numbers += self._recent + [0.0] * (self._tuning.scatter - len(self._recent))
        for one in self._quantiles():
            numbers += one.pack()
        return np.concatenate([numbers, *(shapes.pack() for shapes in self._shapes)])

    def unpack(self, packed: Floats) -> None:
        """Restore the result of `pack`, (n,) float64 with `floats_of(tuning)` of them; zeros are a new detector."""
        *self._reach, self._peak, rest, seen, count = packed[:_HEAD].tolist()
        self._rest, self._seen = int(rest), int(seen)
        start = _HEAD + self._tuning.scatter
        self._recent = packed[_HEAD : _HEAD + int(count)].tolist()
        quantiles = self._quantiles()
        end = start + len(quantiles) * quantile.FLOATS
        numbers = packed[start:end].tolist()
        for place, one in enumerate(quantiles):
            one.unpack(numbers[place * quantile.FLOATS : (place + 1) * quantile.FLOATS])
        for shapes, part in zip(
            self._shapes, np.split(packed[end:], len(self._shapes)), strict=True
        ):
            shapes.unpack(part)

    def _quantiles(self) -> list[Quantile]:
        usual = [*self._levels, self._scatter]
        return [
            *(one for each in usual for one in (*each.hours, each.day)),
            *(one for rarity in self._rarities for one in rarity.quantiles()),
        ]


_HEAD = 6
FLOATS = len(Detector().pack())
