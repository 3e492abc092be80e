"""Make findings of scores: from when to when, how far out at the worst, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backhaul_spark.detect.detector import Detector

# The threshold that earned most on one half of NAB's files (docs/detector.md).
THRESHOLD = 1.087
# Alarms with fewer readings between them than this are one finding.
QUIET_READINGS = 60


@dataclass(frozen=True, slots=True)
class UnusualStretch:
    """A stretch of unusual readings. `start_ns` is when it was noticed, `worst_ns` of `value`."""

    start_ns: int
    end_ns: int
    worst_ns: int
    value: float
    usual: float
    score: float

    @property
    def text(self) -> str:
        """Say it in a sentence."""
        return f"{self.value:g}, where {self.usual:g} is usual at this hour: score {self.score:.1f}"


def find(
    times_ns: Sequence[int],
    values: Sequence[float],
    *,
    threshold: float = THRESHOLD,
    quiet: int = QUIET_READINGS,
) -> list[UnusualStretch]:
    """Run a new detector over a series in the order of its times, and return its findings."""
    detector = Detector()
    judged = [detector.judge(*reading) for reading in zip(times_ns, values, strict=True)]
    alarms = np.array([judgement.score >= threshold for judgement in judged], dtype=bool)
    found = []
    for first, last in episodes(alarms, quiet):
        worst = max(range(first, last + 1), key=lambda at: judged[at].score)
        found.append(
            UnusualStretch(
                times_ns[first],
                times_ns[last],
                times_ns[worst],
                values[worst],
                judged[worst].usual,
                judged[worst].score,
            )
        )
    return found


def episodes(alarms: np.ndarray[Any, np.dtype[np.bool_]], quiet: int) -> list[tuple[int, int]]:
    """Return the first and last alarm of each run that has no `quiet` readings without one in it.

    `alarms`: (readings,) bool, in the order of their times.
    """
    at = np.flatnonzero(alarms)
    if not len(at):
        return []
    breaks = np.flatnonzero(np.diff(at) > quiet)
    firsts, lasts = at[np.append(0, breaks + 1)], at[np.append(breaks, len(at) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
