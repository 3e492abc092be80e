"""Make findings of scores: from when to when, how far out at the worst, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backhaul_spark.arrays import Flags
from backhaul_spark.detect import detector as one
from backhaul_spark.detect import joint
from backhaul_spark.detect.detector import Detector
from backhaul_spark.detect.joint import JointDetector, JointTuning
from backhaul_spark.detect.rows import JoinedRows, Row

# The threshold that earned most on NAB's files (docs/detector.md).
THRESHOLD = 1.218
# The score of several series together from which on a row is told; 1 is how far a well machine may stray.
TOGETHER = 1.0
# Parts of a score that are worth a word.
_PART_MIN = 0.15
# Alarms with fewer readings between them than this are one finding.
QUIET_READINGS = 60
# The same for rows of several series, of which each is judged by itself.
QUIET_ROWS = 10


@dataclass(frozen=True, slots=True)
class UnusualStretch:
    """A stretch of unusual readings. `start_ns` is when it was noticed, `worst_ns` of `value`."""

    start_ns: int
    end_ns: int
    worst_ns: int
    value: float
    usual: float
    score: float
    parts: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """Say it in a sentence."""
        return f"{self.value:g}, where {self.usual:g} is usual at this hour: score {self.score:.1f}{why(self.parts)}"


@dataclass(frozen=True, slots=True)
class UnusualTogether:
    """A stretch in which several series together are unusual.

    `parts`: by series, its share in the score of the worst row, the greatest first; together 1. `aspect`: an
    index of joint.WORDS.
    """

    start_ns: int
    end_ns: int
    worst_ns: int
    score: float
    parts: dict[str, float]
    aspect: int

    @property
    def text(self) -> str:
        """Say it in a sentence."""
        return together_text(self.score, self.parts, self.aspect)


def why(parts: Sequence[float]) -> str:
    """Return the reasons of a score of one series in words, by the parts of a judgement; "" without any."""
    shares = sorted(zip(parts, one.WORDS, strict=False), reverse=True)
    words = [f"{word} ({share:.0%})" for share, word in shares if share >= _PART_MIN]
    return f"; {', '.join(words)}" if words else ""


def together_text(score: float, parts: dict[str, float], aspect: int) -> str:
    """Return a sentence with the series that are unusual together, their shares of the score and the reason."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    told = [f"{name} {share:.0%}" for name, share in ordered if share >= _PART_MIN] or [
        f"{ordered[0][0]} {ordered[0][1]:.0%}"
    ]
    return f"{', '.join(told)}: series {joint.WORDS[aspect]}: score {score:.1f}"


def find_together(
    names: Sequence[str],
    readings: Sequence[tuple[Sequence[int], Sequence[float]]],
    *,
    threshold: float = TOGETHER,
    learning: int = joint.JOINT.learning,
    quiet: int = QUIET_ROWS,
) -> tuple[list[UnusualTogether], list[Row], int]:
    """Judge several series of one device together, with a new detector.

    Args:
        names: of the series, in the order of `readings`; 2 to joint.SIGNALS_MAX.
        readings: of each series times (ns since 1970, ascending) and values.
        threshold: the score from which on a row is told.
        learning: rows to learn from.
        quiet: alarms with fewer rows between them are one finding.

    Returns:
        The findings; the rows that were judged, or learned from; and the step of a row, ns.
    """
    step_ns = step_of([times for times, _ in readings])
    rows = rows_of(readings, step_ns)
    detector = JointDetector(len(names), JointTuning(learning=learning))
    judged = [detector.judge(row.values) for row in rows]
    found = []
    for first, last, worst in _stretches([each.score for each in judged], threshold, quiet):
        shares = zip(names, judged[worst].parts, strict=True)
        parts = dict(sorted(shares, key=lambda part: -part[1]))
        start_ns, end_ns, worst_ns = (rows[at].time_ns for at in (first, last, worst))
        score, _, aspect = judged[worst]
        found.append(UnusualTogether(start_ns, end_ns, worst_ns, score, parts, aspect))
    return found, rows, step_ns


def step_of(times_ns: Sequence[Sequence[int]]) -> int:
    """Return the time that a row stands for, ns: the usual distance of readings in the series that has fewest."""
    steps = [int(np.median(np.diff(times))) for times in times_ns if len(times) > 1]
    return max([*steps, 1])


def rows_of(readings: Sequence[tuple[Sequence[int], Sequence[float]]], step_ns: int) -> list[Row]:
    """Return the rows of several series, by time."""
    times = np.concatenate([np.asarray(times, np.int64) for times, _ in readings])
    values = np.concatenate([np.asarray(values, np.float64) for _, values in readings])
    series = np.repeat(np.arange(len(readings)), [len(times) for times, _ in readings])
    order = np.argsort(times, kind="stable")
    made, found = JoinedRows(len(readings), step_ns), []
    columns = (series[order].tolist(), times[order].tolist(), values[order].tolist())
    for reading in zip(*columns, strict=True):
        found += made.add(*reading)
    return found + made.rest()


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
    found = []
    for first, last, worst in _stretches([each.score for each in judged], threshold, quiet):
        when_ns = times_ns[first], times_ns[last], times_ns[worst]
        score, usual, parts = judged[worst]
        found.append(UnusualStretch(*when_ns, values[worst], usual, score, parts))
    return found


def _stretches(
    scores: Sequence[float], threshold: float, quiet: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the first and the last alarm of each episode, and the worst."""
    for first, last in episodes(np.array(scores) >= threshold, quiet):
        yield first, last, max(range(first, last + 1), key=scores.__getitem__)


def episodes(alarms: Flags, quiet: int) -> list[tuple[int, int]]:
    """Return the first and last alarm of each run that has no `quiet` readings without one in it.

    `alarms`: (readings,) bool, in the order of their times.
    """
    at = np.flatnonzero(alarms)
    if not len(at):
        return []
    breaks = np.flatnonzero(np.diff(at) > quiet)
    firsts, lasts = at[np.append(0, breaks + 1)], at[np.append(breaks, len(at) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
