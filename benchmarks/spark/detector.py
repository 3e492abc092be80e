"""How well the detector finds labelled anomalies, beside two plain ways: tests/support/detector_trials.py."""

from __future__ import annotations

import time
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from tests.support.detector_trials import WAYS, recordings_directory, verdicts
from tests.support.nab import Verdict, read_recordings


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
