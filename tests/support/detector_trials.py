"""The detector and two plain ways, each scored on NAB's recordings in three settings.

The files are dealt in turn to two halves. Of the detector there are three sets of constants: chosen on all files, as
NAB's scoreboard has it, and on either half alone. What counts is a half scored with constants and threshold of the
other. Beside it NAB's own way: one threshold for all files, chosen on all of them. The window of the rolling z-score was
chosen on the first half. Every way has its threshold chosen the same way, for the best NAB score.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from backhaul_spark.detect.detector import DEFAULT, FIRST_HALF, SECOND_HALF, Detector, Tuning
from tests.support.nab import Recording, best_threshold, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.nab import Floats, Verdict

Z_WINDOW = 6_400
"""Of 150, 400, 1,000 and 6,400 samples, the best on the first half."""


def recordings_directory() -> Path | None:
    """Return where the labelled recordings are, or None where they are not."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    directory = Path(os.environ.get("BACKHAUL_DATA", beside))
    return directory if (directory / "nab_labelled.parquet").exists() else None


def verdicts(
    recordings: Sequence[Recording],
    way: Callable[[Recording], Floats],
    profiles: Sequence[str] = ("standard",),
) -> dict[str, dict[str, Verdict]]:
    """Score one way in each profile, in the three settings."""
    scores = [way(recording) for recording in recordings]
    return {profile: _settings(recordings, scores, profile) for profile in profiles}


def _settings(
    recordings: Sequence[Recording], scores: Sequence[Floats], profile: str
) -> dict[str, Verdict]:
    first, second = ((recordings[half::2], scores[half::2]) for half in (0, 1))
    everything = recordings, scores
    return {
        "second half": judge(*second, best_threshold(*first, profile), profile),
        "first half": judge(*first, best_threshold(*second, profile), profile),
        "all files": judge(*everything, best_threshold(*everything, profile), profile),
    }


def ours(recording: Recording, tuning: Tuning = DEFAULT) -> Floats:
    """Return the detector's scores."""
    return Detector(tuning).scores(recording.times_ns.tolist(), recording.values.tolist())


def tuned_on_first(recording: Recording) -> Floats:
    """Return the scores with the constants that the first half alone gives."""
    return ours(recording, FIRST_HALF)


def tuned_on_second(recording: Recording) -> Floats:
    """Return the scores with the constants that the second half alone gives."""
    return ours(recording, SECOND_HALF)


def fixed_threshold(recording: Recording) -> Floats:
    """Return the distance from the mean of the learning time, in its standard deviations."""
    learnt = recording.values[: recording.probation]
    distance: Floats = np.abs(recording.values - learnt.mean()) / (learnt.std() or 1.0)
    return distance


def rolling_z_score(recording: Recording) -> Floats:
    """Return the distance from the mean of the samples before, in their standard deviations."""
    values = pd.Series(recording.values)
    before = values.rolling(Z_WINDOW, min_periods=2)
    mean, deviation = before.mean().shift(1), before.std().shift(1)
    # Where nothing ever moved, anything else is far out.
    deviation = deviation.where(deviation > 0, 1e-9 * (mean.abs() + 1))
    distance: Floats = np.nan_to_num(((values - mean).abs() / deviation).to_numpy())
    return distance


WAYS = {
    "ours": ours,
    "ours, tuned on the first half": tuned_on_first,
    "ours, tuned on the second half": tuned_on_second,
    "fixed threshold": fixed_threshold,
    "rolling z-score": rolling_z_score,
}
