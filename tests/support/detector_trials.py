"""The detector and two plain ways, each scored on NAB's recordings in three settings.

The files are dealt in turn to two halves. The detector's constants, and the window of the rolling
z-score, were chosen on the first; so the second, scored with the first one's threshold, is what
counts. Beside it the other way round, and NAB's own way: one threshold for all files, chosen on
all of them. Every way has its threshold chosen the same way, for the best NAB score.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from backhaul_spark.detect.detector import Detector
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
    recordings: Sequence[Recording], way: Callable[[Recording], Floats]
) -> dict[str, Verdict]:
    """Score one way in the three settings."""
    scores = [way(recording) for recording in recordings]
    first, second = ((recordings[half::2], scores[half::2]) for half in (0, 1))
    everything = recordings, scores
    return {
        "second half": judge(*second, best_threshold(*first)),
        "first half": judge(*first, best_threshold(*second)),
        "all files": judge(*everything, best_threshold(*everything)),
    }


def ours(recording: Recording) -> Floats:
    """Return the detector's scores."""
    return Detector().scores(recording.times_ns.tolist(), recording.values.tolist())


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
    "fixed threshold": fixed_threshold,
    "rolling z-score": rolling_z_score,
}
