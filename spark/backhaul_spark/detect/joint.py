"""Say of the state of one machine, several signals at a time, how unusual it is. Pure, one pass.

The first stretch is taken for well. From its first part comes a model: how each signal follows from the
others at that moment, and from all of them a row before (a linear autoregression with ridge). From the rest
comes how far a well machine strays from that. Then each row is judged by three things, smoothed over
ten to twenty rows: signals that no longer fit together, signals that move otherwise than they did, signals that
scatter more or less. The state is some numbers a pair of signals, whatever comes (docs/detector.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backhaul_spark.arrays import Flags, Floats

SIGNALS_MAX = 32
# What is compared, and in whose words.
TOGETHER, MOVING, SPREAD = range(3)
WORDS = (
    "no longer go together as they did",
    "move otherwise than they did",
    "scatter otherwise than they did",
)
_ASPECTS = len(WORDS)
# A row in which fewer of the signals are known says nothing of the machine.
_KNOWN_MIN = 0.5


@dataclass(frozen=True, slots=True)
class JointTuning:
    """The constants; chosen on machines that we simulate, none of them on recordings.

    `learning`: rows that are taken for well. `fitting`: the share of them that the model is made of. `ridge`: of
    a signal's variance, so much is taken for noise of its own. `together`, `moving`, `spread`: rows over which the
    three are smoothed. `clip`: deviations from which on a reading counts for no more. `room`: how much further
    than in its first stretch a well machine may stray. `adapt`: rows in which the middle follows a machine that is well.
    """

    learning: int = 400
    fitting: float = 0.4
    ridge: float = 0.005
    together: float = 10.0
    moving: float = 8.0
    spread: float = 20.0
    clip: float = 8.0
    room: float = 1.9
    adapt: float = 2000.0

    @property
    def fitted(self) -> int:
        """Return the row from which on the model stands."""
        return int(self.learning * self.fitting)


JOINT = JointTuning()


class JointJudgement(NamedTuple):
    """The verdict on one row.

    `score`: 1 is the limit. `parts`: of each signal, its share in the score, together 1; all 0 while
    it learns. `aspect`: what is unusual, an index of WORDS.
    """

    score: float
    parts: tuple[float, ...]
    aspect: int


class JointDetector:
    """Judge the rows of one machine in the order of their time.

    Args:
        signals: how many; 2 to SIGNALS_MAX.
        state: (floats_of(signals),) float64 that it keeps its state in; zeros are a new detector.
    """

    def __init__(
        self, signals: int, tuning: JointTuning = JOINT, state: Floats | None = None
    ) -> None:
        assert 2 <= signals <= SIGNALS_MAX
        self._tuning = tuning
        self._size = signals
        state = np.zeros(floats_of(signals)) if state is None else state
        self._state, start = {}, 0
        for name, shape in shapes(signals).items():
            size = math.prod(shape)
            self._state[name] = state[start : start + size].reshape(shape)
            start += size

    @property
    def rows(self) -> int:
        """Return how many rows it has had."""
        return int(self._state["counts"][0])

    def judge(self, values: Sequence[float]) -> JointJudgement:
        """Say how unusual a row is; `values` has one for each signal, NaN for one that is not known.

        A row with fewer than half of the signals known is passed over with 0.
        """
        row = np.asarray(values, dtype=float)
        known = np.isfinite(row)
        silent = JointJudgement(0.0, (0.0,) * self._size, TOGETHER)
        if known.mean() < _KNOWN_MIN:
            return silent
        state, tuning = self._state, self._tuning
        counts = state["counts"]
        self._meet(row, known)
        row = np.where(known, row, state["mean"])
        previous = state["previous"].copy() if counts[0] else row
        state["previous"][:] = row
        counts[0] += 1
        if counts[0] <= tuning.fitted:
            self._fit(row, previous)
            return silent
        aspects = self._aspects(row, previous, known)
        if counts[0] <= tuning.learning:
            self._learn(aspects)
            self._follow(row)
            return silent
        distances = self._distances(aspects)
        sizes = np.sqrt(distances.mean(axis=1))
        ratios = sizes / (tuning.room * self._limits())
        aspect = int(np.argmax(ratios))
        score = float(ratios[aspect])
        if score < 1:
            self._follow(row)
        parts = distances[aspect]
        total = float(parts.sum())
        shares = parts / total if total > 0 else parts
        return JointJudgement(score, tuple(shares.tolist()), aspect)

    def _meet(self, row: Floats, known: Flags) -> None:
        """Take a signal's first reading for its middle: until then there is none."""
        new = known & (self._state["met"] == 0)
        self._state["mean"][new] = row[new]
        self._state["previous"][new] = row[new]
        self._state["met"][new] = 1

    def _fit(self, row: Floats, previous: Floats) -> None:
        """Take a row into the moments, and after the last of them make the model."""
        state, size = self._state, self._size
        count = state["counts"][0]
        both = np.concatenate([row, previous])
        middle = np.concatenate([state["mean"], state["mean_before"]])
        if count == 1:
            middle[size:] = previous
        off = both - middle
        middle += off / count
        state["moments"] += np.outer(off, both - middle)
        state["mean"][:], state["mean_before"][:] = middle[:size], middle[size:]
        if count == self._tuning.fitted:
            self._model(state["moments"] / count)

    def _model(self, moments: Floats) -> None:
        state, size, ridge = self._state, self._size, self._tuning.ridge
        own = np.sqrt(np.maximum(np.diag(moments)[:size], 0))
        # A signal that stood still: a thousandth of its size is a movement.
        state["unit"][:] = np.maximum(own, 1e-3 * np.abs(state["mean"]) + 1e-9)
        units = np.concatenate([state["unit"], state["unit"]])
        related = moments / np.outer(units, units)
        now, lag, before = related[:size, :size], related[:size, size:], related[size:, size:]
        same = np.eye(size)
        state["follows"][:] = np.linalg.solve(before + ridge * same, lag.T).T
        left = np.diag(now - state["follows"] @ lag.T)
        state["noise"][:] = np.maximum(left, 0) + ridge * max(float(left.mean()), 1e-3) + 1e-4
        inverse = np.linalg.inv(now + ridge * same)
        state["among"][:] = inverse / np.sqrt(np.diag(inverse))[:, None]
        state["scatter"][:] = state["noise"]

    def _aspects(self, row: Floats, previous: Floats, known: Flags) -> Floats:
        """Return the three smoothed, (3, signals), near 0 for a machine as it was."""
        state, tuning = self._state, self._tuning
        unit, clip = state["unit"], tuning.clip
        now = np.clip((row - state["mean"]) / unit, -clip, clip)
        before = np.clip((previous - state["mean"]) / unit, -clip, clip)
        now = np.where(known, now, state["follows"] @ before)
        moved = now - state["follows"] @ before
        noise, smooth = state["noise"], state["smooth"]
        smooth[TOGETHER] += (state["among"] @ now - smooth[TOGETHER]) / tuning.together
        pace = np.clip(moved / np.sqrt(noise), -clip, clip)
        smooth[MOVING] += (pace - smooth[MOVING]) / tuning.moving
        square = np.minimum(moved * moved, 25 * noise)
        state["scatter"] += (square - state["scatter"]) / tuning.spread
        smooth[SPREAD] = np.log((state["scatter"] + 0.05 * noise) / noise)
        return smooth

    def _learn(self, aspects: Floats) -> None:
        """Learn how far a well machine strays: each signal by itself, then all of them."""
        state = self._state
        state["counts"][1] += 1
        count = state["counts"][1]
        off = aspects - state["middle"]
        state["middle"] += off / count
        state["squares"] += off * (aspects - state["middle"])
        # The first half only says how each signal strays: distances are in units of that.
        part = count - (self._tuning.learning - self._tuning.fitted) // 2
        if part < 1:
            return
        size = 0.5 * np.log(self._distances(aspects).mean(axis=1) + 1e-6)
        away = size - state["sizes"][0]
        state["sizes"][0] += away / part
        state["sizes"][1] += away * (size - state["sizes"][0])
        state["sizes"][2] = np.maximum(size, state["sizes"][2]) if part > 1 else size
        state["counts"][2] = part

    def _distances(self, aspects: Floats) -> Floats:
        state, tuning = self._state, self._tuning
        # What one calm stretch may leave too small.
        least = np.array([0.1, 0.35 / math.sqrt(tuning.moving), 0.175])[:, None]
        middle = state["middle"]
        spread = np.sqrt(state["squares"] / state["counts"][1] + middle**2 / 2) + least
        distances: Floats = ((aspects - middle) / spread) ** 2
        return distances

    def _limits(self) -> Floats:
        mean, squares, most = self._state["sizes"]
        limits: Floats = np.exp(
            np.maximum(most, mean + 3 * np.sqrt(squares / self._state["counts"][2]))
        )
        return limits

    def _follow(self, row: Floats) -> None:
        """Let the middle follow a machine that is well: oil ages, seasons pass."""
        state = self._state
        away = np.clip(row - state["mean"], -3 * state["unit"], 3 * state["unit"])
        state["mean"] += away / self._tuning.adapt


def shapes(signals: int) -> dict[str, tuple[int, ...]]:
    """Return the parts of the state, in the order in which they lie."""
    one, square = (signals,), (signals, signals)
    return {
        "counts": (3,),
        "met": one,
        "mean": one,
        "mean_before": one,
        "previous": one,
        "unit": one,
        "noise": one,
        "scatter": one,
        "moments": (2 * signals, 2 * signals),
        "follows": square,
        "among": square,
        "smooth": (_ASPECTS, signals),
        "middle": (_ASPECTS, signals),
        "squares": (_ASPECTS, signals),
        "sizes": (3, _ASPECTS),
    }


def floats_of(signals: int) -> int:
    """Return the length of the state."""
    return sum(math.prod(shape) for shape in shapes(signals).values())
