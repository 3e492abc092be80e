"""How well faults of machines are found in several series together, beside plain ways."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from benchmarks.detect.rivals import autoregression, isolation_forest, principal_components
from tests.support.machines import MACHINES, ROWS, Rates, faults_of, measured, ours, rated

SEVERITIES = (1.0, 0.7, 0.5)
SEED = 40
"""Machines with this seed and later were not used while the constants were chosen."""


def run(*, quick: bool) -> dict[str, object]:
    """Score all ways on simulated machines, well and ill, print the table, return it."""
    ways = {
        "ours": ours,
        "PCA, T-squared and Q": principal_components,
        "autoregression with ridge": autoregression,
    }
    if importlib.util.find_spec("sklearn") is None:
        print("isolation forest: left out, scikit-learn is not installed (group rivals)")
    else:
        ways["isolation forest"] = isolation_forest
    seeds = range(SEED, SEED + (1 if quick else 4))
    table = Table(title="Rows of faulty machines found", title_justify="left", title_style="bold")
    table.add_column("")
    for column in (
        "F1",
        "false %",
        "missed %",
        "delay, rows",
        "faults found",
        "well, false %",
        "us a row",
    ):
        table.add_column(column, justify="right")
    result: dict[str, object] = {}
    for name, way in ways.items():
        before = time.process_time()
        ill = [
            measured(machine, fault, seed=seed, severity=severity, way=way)
            for machine in MACHINES
            for fault in faults_of(machine)
            for severity in SEVERITIES
            for seed in seeds
        ]
        well = [
            measured(machine, None, seed=seed, way=way) for machine in MACHINES for seed in seeds
        ]
        cost_us = 1e6 * (time.process_time() - before) / (ROWS * (len(ill) + len(well)))
        rates, calm = rated(ill), rated(well)
        table.add_row(name, *_cells(rates), f"{calm.false_alarms:.1f}", f"{cost_us:.0f}")
        result[name] = asdict(rates) | {"well": calm.false_alarms, "us_a_row": cost_us}
    Console(width=120, highlight=False).print(table)
    return result


def _cells(rates: Rates) -> list[str]:
    numbers = [f"{rates.f1:.2f}", f"{rates.false_alarms:.1f}", f"{rates.missed:.1f}"]
    return [*numbers, f"{rates.delay:.0f}", rates.found]
