"""Plant faults in a simulated fleet and count what the jobs find, over the whole way.

Of each seed: `backhaul-hub simulate` writes two days of a fleet into a test hub, as backlogs that end
at midnight, and then some seconds of today (a clock is known to be wrong by when the hub stores what
it stamps). `backhaul-spark ingest`, `rollup` and `anomalies` do the rest, as commands. A fault counts
as found when the anomalies of a day name the vehicle (of a draining firmware: the firmware of a model),
and as named when they do so by the right kind. False are devices, and firmwares, without a fault that
are named on any of the three days, or in an hour of them.

The seeds served for nothing before: the thresholds were set on the made tables of tests/support.
BACKHAUL_PLANTED_SEEDS=101,102 takes others, BACKHAUL_PLANTED_DEVICES another fleet.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least, at_most, report
from tests.support.planted_faults import Score, hub_running, score
from tests.support.rig.parts import program

SEEDS = "101,102,103,104"
DEVICES = 1000
PAST = "2d"
RATE = "1/min"
LIVE_S = 5
FALSE_AIM = 0.001
DAY_NS = 86_400 * 10**9
# What is planted in a fleet of 1,000, and the kind of anomaly that it is.
PLANTED = {"drain": 100, "stuck": 10, "drift": 10, "clock": 10, "silent": 10}


def run(*, quick: bool) -> dict[str, object]:
    """Score each seed (quick: the first), print a line of each, and return the figures."""
    seeds = os.environ.get("BACKHAUL_PLANTED_SEEDS", SEEDS).split(",")[: 1 if quick else None]
    devices = int(os.environ.get("BACKHAUL_PLANTED_DEVICES", DEVICES))
    scores = []
    for seed in seeds:
        with scratch.directory(f"planted-{seed}") as directory:
            scores.append(asyncio.run(_one(directory, seed, devices)))
        print(f"  seed {seed}: {_told(scores[-1])}", flush=True)
    figures = [_figure(fault, scores) for fault in scores[0].planted]
    false, judged = sum(len(each.false_devices) for each in scores), devices * len(seeds)
    note = f"{false} of {judged:,}"
    figures.append(Figure("false devices", false / judged, "of all", at_most(FALSE_AIM), note))
    firmwares = sum(len(each.false_firmwares) for each in scores)
    figures.append(Figure("false firmwares", firmwares, "", at_most(0)))
    title = f"{devices:,} vehicles of each seed: {', '.join(seeds)}"
    return report(title, figures, missed=[of for each in scores for of in each.missed])


def _figure(fault: str, scores: list[Score]) -> Figure:
    planted, found, named = (
        sum(counter[fault] for counter in counters)
        for counters in zip(
            *((each.planted, each.found, each.named) for each in scores), strict=True
        )
    )
    note = f"{named} of {planted}; {found} found as anything"
    return Figure(f"{fault} found and named", named / planted, "of planted", at_least(1), note)


def _told(result: Score) -> str:
    named, planted = result.named.total(), result.planted.total()
    wrong = sorted(result.false_devices | result.false_firmwares)
    notes = [f"{named} of {planted} named", f"{len(wrong)} false", *wrong, *result.missed]
    return "; ".join(notes)


async def _one(directory: Path, seed: str, devices: int) -> Score:
    """Send a fleet with faults the whole way and score what is said of it."""
    clock, truth = SystemClock(), directory / "truth.json"
    midnight = datetime.fromtimestamp(clock.now_ns() // DAY_NS * DAY_NS / 1e9, UTC)
    faults = ",".join(f"{fault}:{number * devices // 1000}" for fault, number in PLANTED.items())
    fleet = ["--devices", str(devices), "--seed", seed, "--faults", faults, "--rate", RATE]
    past = ["--seconds", "0", "--backlog", f"{devices}x{PAST}", "--backlog-rate", "20000"]
    past += ["--start", f"{midnight:%Y-%m-%dT%H:%M:%SZ}", "--truth", str(truth)]
    root = ["--table-root", str(directory / "tables")]
    hub = str(directory / "hub")
    async with hub_running(directory):
        await _output("backhaul-hub", "simulate", "--dir", hub, *fleet, *past)
        await _output("backhaul-hub", "simulate", "--dir", hub, *fleet, "--seconds", str(LIVE_S))
        await _output("backhaul-spark", "ingest", *root, "--hub-dir", hub, "--once", "--quiet")
    await _output("backhaul-spark", "rollup", *root, "--quiet")
    rows: list[dict[str, Any]] = []
    yesterday = midnight - timedelta(days=1)
    for scope in ([], ["--day", f"{midnight:%F}"], ["--day", f"{yesterday:%F}", "--hour", "12"]):
        said = await _output("backhaul-spark", "anomalies", *root, *scope, "--json", "--quiet")
        rows += [row for day in json.loads(said) for row in day["found"]]
    return score(json.loads(truth.read_text()), rows)


async def _output(name: str, *arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        program(name), *arguments, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise BenchmarkError(f"{name} {arguments[0]} ended with {process.returncode}")
    return said
