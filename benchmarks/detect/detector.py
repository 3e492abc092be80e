"""How well the detector finds labelled anomalies, beside plain ways, two libraries and NAB's scoreboard."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.detect.rivals import RIVALS
from benchmarks.figures import skipped
from tests.support.detector_trials import WAYS, recordings_directory, verdicts
from tests.support.nab import PROFILES, Verdict, read_recordings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.nab import Floats, Recording

# As NAB's page gives them, a threshold for each profile chosen on all files.
SCOREBOARD = {
    "ARTime": (74.9, 65.1, 80.4),
    "Numenta HTM": (70.5, 62.6, 75.2),
    "CAD OSE": (69.9, 67.0, 73.2),
    "earthgecko Skyline": (58.2, 46.2, 63.9),
    "KNN CAD": (58.0, 43.4, 64.8),
    "Relative Entropy": (54.6, 47.6, 58.8),
    "Random Cut Forest": (51.7, 38.4, 59.7),
    "Windowed Gaussian": (39.6, 20.9, 47.4),
}
Results = dict[str, dict[str, dict[str, Verdict]]]


def run(*, quick: bool) -> dict[str, object]:
    """Score all ways on all recordings, print the tables, return them; `quick` leaves the libraries out."""
    directory = recordings_directory()
    if directory is None:
        return skipped("detector")
    recordings = read_recordings(directory)
    ways: dict[str, Callable[[Recording], Floats]] = dict(WAYS)
    for rival in () if quick else RIVALS:
        if importlib.util.find_spec(rival.library) is None:
            print(f"{rival.name}: left out, {rival.library} is not installed (group rivals)")
        else:
            ways[rival.name] = rival.scores
    samples = sum(len(recording.values) for recording in recordings)
    results: Results = {}
    costs_us = {}
    for name, way in ways.items():
        before = time.process_time()
        results[name] = verdicts(recordings, way, tuple(PROFILES))
        costs_us[name] = 1e6 * (time.process_time() - before) / samples
    _print(results, costs_us)
    _print_profiles(results)
    return {
        name: {
            profile: {setting: asdict(one) | {"f1": one.f1} for setting, one in settings.items()}
            for profile, settings in of_way.items()
        }
        | {"us_a_reading": costs_us[name]}
        for name, of_way in results.items()
    }


def _print(results: Results, costs_us: Mapping[str, float]) -> None:
    """Print the standard profile, setting by setting."""
    table = Table(
        title="Labelled anomalies found, percent", title_justify="left", title_style="bold"
    )
    for column in ("scored on", ""):
        table.add_column(column)
    for column in ("early", "precision", "recall", "F1", "of samples", "threshold", "us a reading"):
        table.add_column(column, justify="right")
    for setting in next(iter(results.values()))["standard"]:
        for name, of_way in results.items():
            verdict = of_way["standard"][setting]
            parts = (verdict.early, verdict.precision, verdict.recall, verdict.f1)
            cells = [f"{part:.1f}" for part in (*parts, verdict.sample_precision)]
            table.add_row(
                setting, name, *cells, f"{verdict.threshold:.3f}", f"{costs_us[name]:.0f}"
            )
        table.add_section()
    Console(width=120, highlight=False).print(table)


def _print_profiles(results: Results) -> None:
    """Print NAB's score in its three profiles, beside its scoreboard."""
    table = Table(title="NAB's score", title_justify="left", title_style="bold")
    for column in ("", "scored on"):
        table.add_column(column)
    for profile in PROFILES:
        table.add_column(profile, justify="right")
    for name, of_way in results.items():
        for setting in of_way["standard"]:
            cells = [f"{of_way[profile][setting].early:.1f}" for profile in PROFILES]
            table.add_row(name, setting, *cells)
    table.add_section()
    for name, scores in SCOREBOARD.items():
        table.add_row(name, "all files, as published", *(f"{score:.1f}" for score in scores))
    Console(width=120, highlight=False).print(table)
