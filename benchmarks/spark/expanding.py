"""Memory and seconds for valid messages that come to far more than they weigh, beside honest ones.

Modelled: what a stolen vehicle may write, by kind: frames of 2**18 equal readings, a text or byte string of
138 kB in 400 points, as many series as a frame has room for, names of the greatest length. Each kind goes
through ingest in a process of its own: a task decodes and writes, the driver commits, the first message
comes again and is left out. Then small files become large ones, and a rollup sums them up, each in a process of its own. Peaks are the kernel's (VmHWM), Python and its
libraries included. Not covered: Spark itself, through which no point passes, and the hub.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report

PEAK_MB = 512
# Of the size in which the fault was found, where that takes no more than some seconds.
LOADS = {
    "honest": (2000, "frames of 250 readings"),
    "points": (60, "frames of 2**18 equal readings"),
    "texts": (60, "a text of 138 kB in 400 points"),
    "blobs": (60, "bytes likewise"),
    "series": (20, "60,000 series of a point"),
    "names": (12, "200,000 points of a node with a name of 255 bytes"),
}


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, return the figures; under a minute when quick."""
    figures: list[Figure] = []
    for kind, (messages, what) in LOADS.items():
        found = _ingested(kind, messages // 4 if quick else messages)
        if found["rows"] != found["held"]:
            raise BenchmarkError(f"{kind}: {found['rows']} rows were counted, {found['held']} held")
        if found["counted"] != (0 if kind == "blobs" else found["rows"]):
            raise BenchmarkError(
                f"{kind}: {found['counted']} of {found['rows']} are in the rollups"
            )
        name = f"{kind}: {found['rows']:,} rows from {found['bytes']:,} bytes"
        most = max(found[each] for each in ("task_mb", "driver_mb", "compact_mb", "rollup_mb"))
        parts = f"task {found['task_mb']}, driver {found['driver_mb']}, compaction {found['compact_mb']}"
        parts += f", rollup {found['rollup_mb']}"
        figures.append(Figure(f"{name}, peak", most, "MB", at_most(PEAK_MB), parts))
        figures.append(Figure(f"{kind}: all messages once", found["seconds"], "s", note=what))
        figures.append(Figure(f"{kind}: rolled up", found["rollup_s"], "s"))
    return report("expanding: small messages that come to much, through ingest and rollup", figures)


def _ingested(kind: str, messages: int) -> dict[str, Any]:
    with scratch.directory("expanding") as directory:
        words = [sys.executable, "-m", "tests.support.expanding", str(directory), kind]
        done = subprocess.run([*words, str(messages)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{kind}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
