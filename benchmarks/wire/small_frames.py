"""Measure what tiny messages cost a reader: those of a fleet, proven together and one by one.

Every frame is of another vehicle of `backhaul-hub simulate`, deflated; the single points are what its
vehicles say of themselves at their start, four each. Bundles are of a gateway with thirty nodes and two readings
of each. All have the subjects that the hub has for them.
Processor time of one core, the best of several runs.
"""

from __future__ import annotations

import gc
from functools import partial
from random import Random
from time import process_time
from timeit import repeat

from backhaul_codec import Point, encode_bundle
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.kinds import BULK
from backhaul_codec.subjects import BUNDLE_SUBJECT
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles
from backhaul_hub.simulated.lanes import Sourced
from benchmarks.figures import Figure, at_most, report

PASSES = (1, 5)
BATCHES = (100, 1_000, 10_000)
_ONE_BY_ONE = 1 << 30
_AIM_US = 15
_NODES = 30


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, and return it."""
    repeats = 2 if quick else 5
    figures = []
    for passes in PASSES:
        frames = [each for each in _fleet(passes).live(0, max(BATCHES)) if each.lane == BULK]
        figures += [_figure("frames", frames[:batch], repeats) for batch in BATCHES]
    bundles = [
        Sourced("GW-001", BUNDLE_SUBJECT, BULK, number, body)
        for number, body in enumerate(_bundles(1_000), 1)
    ]
    figures += [_figure("bundles", bundles[:batch], repeats, _NODES) for batch in (100, 1_000)]
    points = list(_fleet(1).introductions())
    figures += [_figure("points", points[:batch], repeats) for batch in BATCHES]
    return report("small_frames: a fleet's tiny messages into Arrow", figures)


def _fleet(passes: int) -> SimulatedVehicles:
    """Return a fleet with as many vehicles as frames are read together."""
    start_ns = 1_790_000_000_000_000_000
    return SimulatedVehicles(
        FleetPlan(max(BATCHES), 6, passes, seed=1, start_ns=start_ns, seconds=60)
    )


def _bundles(count: int) -> list[bytes]:
    """Return a gateway's bundles of a second each: 60 readings with one decimal, a random walk."""
    dice, at = Random(1), [500 + number for number in range(2 * _NODES)]
    found = []
    for second in range(count):
        at = [value + dice.randrange(-2, 3) for value in at]
        points = [
            Point(
                f"sensor{number // 2:02d}",
                ("temperature", "humidity")[number % 2],
                second * 10**9,
                value / 10,
            )
            for number, value in enumerate(at)
        ]
        found.append(encode_bundle(points, epoch=1, seq=second + 1))
    return found


def _figure(what: str, sourced: list[Sourced], repeats: int, nodes: int = 1) -> Figure:
    """Measure messages that stand for one of each of `nodes` nodes."""
    count = len(sourced)
    subjects = [f"up.{each.device}.{each.leaf_subject}" for each in sourced]
    read = partial(decode_columns, [each.body for each in sourced], subjects=subjects)
    one_by_one = partial(read, together_min=_ONE_BY_ONE)
    # The shortest of several runs: the others measured the machine's other work.
    together_s = min(repeat(read, gc.enable, process_time, repeats, 1))
    alone_s = min(repeat(one_by_one, gc.enable, process_time, repeats, 1))
    rows = read().num_rows / count
    return Figure(
        f"{count:,} {what}, {rows:.1f} rows each",
        round(together_s / count * 1e6, 2),
        "us/message",
        at_most(_AIM_US * nodes) if count >= 1_000 else None,
        f"one by one: {alone_s / count * 1e6:.1f}",
    )
