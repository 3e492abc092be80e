"""The Numenta Anomaly Benchmark: its recordings, and how it scores a detector, in its three profiles.

A detector gives each sample a score. One threshold for all files makes alarms of them: a labelled
window earns up to 1 for the first alarm in it, more the earlier; a window without one costs 1; an
alarm outside costs up to 0.11, less just behind a window. The threshold is the one that sums to
the most. 0 is a detector that never says anything, 100 one that alarms at the first sample of each
window and nowhere else. The first 15% of a file (750 samples at most) are for learning and count
for nothing. Of the published scores of six detectors on its scoreboard, this module gives each digit from their stored
results. Source: Lavin and Ahmad, "Evaluating Real-time Anomaly Detection Algorithms", 2015.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_spark.detect.findings import QUIET_READINGS, episodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

# By profile, what an alarm outside costs, and a window without an alarm.
PROFILES = {"standard": (0.11, 1.0), "low-FP": (0.22, 1.0), "low-FN": (0.11, 2.0)}
PROBATION, PROBATION_OF_SAMPLES_MAX = 0.15, 5_000


@dataclass(frozen=True, slots=True)
class Recording:
    """One file: times (ns), values, and the windows as first and last index, both included."""

    name: str
    times_ns: Integers
    values: Floats
    windows: tuple[tuple[int, int], ...]

    @property
    def probation(self) -> int:
        """Return how many samples from the first on count for nothing."""
        return int(PROBATION * min(len(self.values), PROBATION_OF_SAMPLES_MAX))


def read_recordings(directory: Path) -> list[Recording]:
    """Read all files, sorted by name."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    table = pq.read_table(directory / "nab_labelled.parquet")
    labels = json.loads((directory / "nab_combined_windows.json").read_text())
    files = table.column("file").to_numpy()
    times_ns, values = table.column("t_ns").to_numpy(), table.column("value").to_numpy()
    recordings = []
    for name in sorted(labels):
        rows = np.flatnonzero(files == name)
        windows = [_indices(times_ns[rows], window) for window in labels[name]]
        recordings.append(Recording(name, times_ns[rows], values[rows], tuple(windows)))
    return recordings


def _indices(times_ns: Integers, window: Sequence[str]) -> tuple[int, int]:
    first, last = (np.datetime64(text, "ns").astype(np.int64) for text in window)
    inside = np.flatnonzero((times_ns >= first) & (times_ns <= last))
    return int(inside[0]), int(inside[-1])


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one detector did on some recordings. All but `threshold` are at most 100 (percent).

    `early` is NAB's score. `precision`: findings that begin in a window, a finding being alarms with
    fewer than 60 quiet samples between them; `recall`: windows with an alarm in them; `f1`: their
    harmonic mean. `sample_precision`: alarms that lie in a window, each sample by itself.
    """

    threshold: float
    early: float
    precision: float
    recall: float
    sample_precision: float

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def best_threshold(
    recordings: Sequence[Recording], scores: Sequence[Floats], profile: str = "standard"
) -> float:
    """Return the score from which on a sample should be an alarm, for the most points in all.

    Infinite if silence is best. The same for all recordings, as NAB has it.
    """
    all_scores, gains = [], []
    for recording, score in zip(recordings, scores, strict=True):
        order, gain = _gains(recording, score, profile)
        all_scores.append(score[order])
        gains.append(gain)
    flat, gain = np.concatenate(all_scores), np.concatenate(gains)
    order = np.argsort(-flat, kind="stable")
    total = np.cumsum(gain[order])
    # Samples of one score become alarms together: only the last of them may be where it stops.
    last = np.append(np.diff(flat[order]) != 0, True)
    best = int(np.argmax(np.where(last, total, -np.inf)))
    return float(flat[order][best]) if total[best] > 0 else float("inf")


def judge(
    recordings: Sequence[Recording],
    scores: Sequence[Floats],
    threshold: float,
    profile: str = "standard",
) -> Verdict:
    """Score a detector at a threshold."""
    false_alarm, missed = PROFILES[profile]
    points = 0.0
    alarms = right = found = findings = real = 0
    for recording, score in zip(recordings, scores, strict=True):
        alarm = score >= threshold
        alarm[: recording.probation] = False
        inside = _inside(recording)
        weights = position_weights(recording, false_alarm)
        alarms += int(alarm.sum())
        right += int((alarm & inside).sum())
        begins = [first for first, _ in episodes(alarm, QUIET_READINGS)]
        findings += len(begins)
        real += int(inside[begins].sum())
        points += float(weights[alarm & ~inside].sum())
        for first, last in recording.windows:
            hits = np.flatnonzero(alarm[first : last + 1])
            found += bool(len(hits))
            points += weights[first + hits[0]] + missed if len(hits) else 0
    windows = sum(len(recording.windows) for recording in recordings)
    return Verdict(
        threshold,
        early=100 * points / ((1 + missed) * windows),
        precision=100 * real / findings if findings else 0.0,
        recall=100 * found / windows,
        sample_precision=100 * right / alarms if alarms else 0.0,
    )


def position_weights(recording: Recording, false_alarm: float = PROFILES["standard"][0]) -> Floats:
    """Return what an alarm at each sample is worth: in a window up to 1, elsewhere below 0.

    Little below 0 just behind a window, as little above as at its end: nearly in time.
    """
    positions = np.arange(len(recording.values))
    weights = np.full(len(positions), -false_alarm)
    for first, last in recording.windows:
        behind = positions > last
        past = (positions[behind] - last) / max(last - first, 1)
        weights[behind] = false_alarm * _sigmoid(past)
    for first, last in recording.windows:
        left = -(last - positions[first : last + 1] + 1) / (last - first + 1)
        weights[first : last + 1] = _sigmoid(left) / _sigmoid(np.array(-1.0))
    return weights


def _sigmoid(position: Floats) -> Floats:
    return np.where(position > 3, -1.0, 2 / (1 + np.exp(5 * np.minimum(position, 3))) - 1)


def _inside(recording: Recording) -> np.ndarray[Any, np.dtype[np.bool_]]:
    inside = np.zeros(len(recording.values), dtype=bool)
    for first, last in recording.windows:
        inside[first : last + 1] = True
    return inside


def _gains(recording: Recording, score: Floats, profile: str) -> tuple[Integers, Floats]:
    """Return samples by falling score, and what the total gains as each becomes an alarm too."""
    counted = np.arange(recording.probation, len(score))
    order = counted[np.argsort(-score[counted], kind="stable")]
    false_alarm, missed = PROFILES[profile]
    weights = position_weights(recording, false_alarm)
    gains = np.where(_inside(recording), 0.0, weights)[order]
    for first, last in recording.windows:
        places = np.flatnonzero((order >= first) & (order <= last))
        best = np.maximum.accumulate(np.append(-missed, weights[order[places]]))
        gains[places] = np.diff(best)
    return order, gains
