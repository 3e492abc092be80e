"""How well the detector finds what people labelled: NAB's recordings, beside two plain ways.

The files are dealt in turn to two halves. The detector's constants, and the window of the rolling
z-score, were chosen on the first; so the second, scored with the first one's threshold, is what
counts. Beside it the other way round, and NAB's own way: one threshold for all files, chosen on
all of them. Every way has its threshold chosen the same way, for the best NAB score.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from backhaul_spark.detect.detector import Detector

from .nab import Recording, best_threshold, judge, read_recordings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .nab import Floats, Verdict

Z_WINDOW = 6_400
"""Of 150, 400, 1,000 and 6,400 samples, the best on the first half."""


def run(*, quick: bool) -> dict[str, object]:
    """Score all ways on all recordings, print the table, return it; `quick` changes nothing."""
    directory = recordings_directory()
    if directory is None:
        reason = "recordings absent: set BACKHAUL_DATA to the directory that holds them"
        print(f"detector: skipped, {reason}")
        return {"skipped": reason}
    recordings = read_recordings(directory)
    before = time.perf_counter()
    results = {name: verdicts(recordings, way) for name, way in WAYS.items()}
    samples = sum(len(recording.values) for recording in recordings)
    _print(results)
    print(f"{samples:,} samples, {len(recordings)} files, {time.perf_counter() - before:.0f} s")
    return {
        name: {setting: asdict(verdict) | {"f1": verdict.f1} for setting, verdict in of_way.items()}
        for name, of_way in results.items()
    }


def recordings_directory() -> Path | None:
    """Return where the labelled recordings are, or None where they are not."""
    beside = Path(__file__).parents[2] / "shared" / "data"
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


def _print(results: dict[str, dict[str, Verdict]]) -> None:
    table = Table(
        title="Labelled anomalies found, percent", title_justify="left", title_style="bold"
    )
    for column in (
        "scored on",
        "",
        "early",
        "precision",
        "recall",
        "F1",
        "of samples",
        "threshold",
    ):
        table.add_column(column, justify="left" if column in ("scored on", "") else "right")
    for setting in next(iter(results.values())):
        for name, of_way in results.items():
            verdict = of_way[setting]
            parts = (verdict.early, verdict.precision, verdict.recall, verdict.f1)
            cells = [f"{part:.1f}" for part in (*parts, verdict.sample_precision)]
            table.add_row(setting, name, *cells, f"{verdict.threshold:.3f}")
        table.add_section()
    Console(width=100, highlight=False).print(table)
