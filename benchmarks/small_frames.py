"""Measure what tiny messages cost a reader: those of a fleet, proven together and one by one.

Every frame is of another vehicle of `backhaul-hub simulate`, deflated; the single points are what its
vehicles say of themselves at their start, four each. All have the subjects that the hub has for them.
Processor time of one core, the best of several runs.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.kinds import BULK
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles

from .figures import Figure, at_most, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_hub.simulated.lanes import Sourced

PASSES = (1, 5)
BATCHES = (100, 1_000, 10_000)
_ONE_BY_ONE = 1 << 30
_AIM_US = 15


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, and return it."""
    repeats = 2 if quick else 5
    figures = []
    for passes in PASSES:
        frames = [each for each in _fleet(passes).live(0, max(BATCHES)) if each.lane == BULK]
        figures += [_figure("frames", frames[:batch], repeats) for batch in BATCHES]
    points = list(_fleet(1).introductions())
    figures += [_figure("points", points[:batch], repeats) for batch in BATCHES]
    return report("small_frames: a fleet's tiny messages into Arrow", figures)


def _fleet(passes: int) -> SimulatedVehicles:
    """Return a fleet with as many vehicles as frames are read together."""
    start_ns = 1_790_000_000_000_000_000
    return SimulatedVehicles(
        FleetPlan(max(BATCHES), 6, passes, seed=1, start_ns=start_ns, seconds=60)
    )


def _figure(what: str, sourced: list[Sourced], repeats: int) -> Figure:
    count = len(sourced)
    subjects = [f"up.{each.device}.{each.leaf_subject}" for each in sourced]
    read = partial(decode_columns, [each.body for each in sourced], subjects=subjects)
    together_s = _best_s(repeats, read)
    alone_s = _best_s(repeats, partial(read, together_min=_ONE_BY_ONE))
    return Figure(
        f"{count:,} {what}, {read().num_rows / count:.1f} rows each",
        round(together_s / count * 1e6, 2),
        "us/message",
        at_most(_AIM_US) if count >= 1_000 else None,
        f"one by one: {alone_s / count * 1e6:.1f}",
    )


def _best_s(repeats: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)
