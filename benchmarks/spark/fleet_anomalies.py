"""Measure judging a day of a fleet: seconds, memory, what was planted and found, and false alarms.

The day is made as rollups (tests/support), 100,000 devices with 10 signals by the hour and two days
before it; faults are planted in 1 of 1,000 and a firmware that drains in 2 of 100. The job runs in a
process of its own, whose largest resident set is told. Beside it stands a plain z-score (mean and
standard deviation of the whole fleet, limit 3) over the same day's means.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.readings import Readings, Windows
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing
from backhaul_spark.tables.delta import make_table, open_table
from backhaul_spark.tables.schemas import ROLLUPS_TABLE
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from tests.support.fleet_rollups import DAY, SimulatedFleet, days_before

CHUNK = 5000
KEYS = ("", "b")
PAST = 2
FALSE_AIM = 0.001


def run(*, quick: bool) -> dict[str, object]:
    """Judge a day of 100,000 devices (quick: 5,000); print and return."""
    devices = CHUNK if quick else 20 * CHUNK
    with scratch.directory("fleet-anomalies") as directory:
        root = str(directory)
        truth: dict[str, str] = {}
        firmwares: set[tuple[str, str]] = set()
        make_table(root, ROLLUPS_TABLE)
        for fleet in _chunks(devices):
            for day in [*days_before(PAST), DAY]:
                fleet.write(root, day)
            truth |= {fleet.names[i]: "stuck" for i in fleet.stuck}
            truth |= {fleet.names[i]: "drift" for i in fleet.drifting}
            truth |= {fleet.names[i]: "no_data" for i in fleet.silent}
            firmwares |= {(fleet.models[i], "4.2") for i in fleet.draining}
        judged = _in_a_process(root)
        found = standing(root, DAY)
        plain = _plain_z_scores(root, devices)
    named = {row["device"]: row["kind"] for row in found if row["device"]}
    blamed = {(row["model"], row["firmware"]) for row in found if row["kind"] == "firmware"}
    false = set(named) - set(truth)
    results: dict[str, Any] = {
        "devices": devices,
        "rows": devices * 5 * len(KEYS) * 24,
        **judged,
        "planted": len(truth),
        "found_and_named": sum(named.get(device) == kind for device, kind in truth.items()),
        "firmwares_planted": len(firmwares),
        "firmwares_found": len(firmwares & blamed),
        "firmwares_false": len(blamed - firmwares),
        "false_devices": len(false),
        "false_share": len(false) / devices,
        "aim_false_share": FALSE_AIM,
        "met": len(false) <= FALSE_AIM * devices,
        "plain_z_score_false_share": len(plain - set(truth)) / devices,
        "plain_z_score_found": len(plain & set(truth)),
    }
    for name, value in results.items():
        print(f"  {name:28}{value}")
    return results


def _chunks(devices: int) -> Iterator[SimulatedFleet]:
    for seed, first in enumerate(range(0, devices, CHUNK)):
        yield SimulatedFleet(
            CHUNK,
            seed,
            tails=3.0,
            stuck=(1, 2),
            drifting=(3, 4),
            silent=(5,),
            draining=range(100, 200),
            first=first,
            keys=KEYS,
        )


def _in_a_process(root: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.spark.fleet_anomalies", root]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if ended.returncode:
        raise BenchmarkError(f"the job ended with {ended.returncode}: {ended.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def _judge(root: str) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    FleetJob(root, SYSTEM_CLOCK, FleetSettings()).run(DAY)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    # Not ru_maxrss: a process starts with that of the one that started it.
    status = Path("/proc/self/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    return {
        "seconds": round(seconds, 1),
        "cpu_s": round(cpu_s, 1),
        "peak_mb": round(peak_kib / 1024),
    }


def _plain_z_scores(root: str, devices: int) -> set[str]:
    """Return whom a z-score over the fleet's daily means would name."""
    readings = Readings(open_table(root, ROLLUPS_TABLE).to_pyarrow_dataset())
    windows = Windows("1d", DAY)
    census = readings.census(windows, [])
    named: set[int] = set()
    for _, cells in readings.cells(windows, census.devices, census.signals):
        level = cells.level[:, 0]
        score = np.abs(level - np.nanmean(level)) / np.nanstd(level)
        named.update(np.flatnonzero(score > 3).tolist())
    return {census.devices[i] for i in named}


if __name__ == "__main__":
    print(json.dumps(_judge(sys.argv[1])))
