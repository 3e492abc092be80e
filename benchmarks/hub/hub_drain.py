"""Measure how fast a backlog reaches the hub, and how soon the hub can prove that it is complete.

A vehicle without a link has kept many frames. Its link is brought up, over loopback: from then on,
until the hub's stream holds every frame, and until the control plane has read and checked them all
and says that nothing is missing; and the processor time that this cost the control plane. Once with
the hub's store synced to disk at every write, which is our default, and once with the server's own
default of two minutes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.figures import Figure, report
from tests.support.backlog import FRAME_POINTS, publish_frames, require_all_frames
from tests.support.rig.vehicle import cpu_s, vehicle

_SYNC_INTERVALS = ("always", "2m")
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Drain:
    """One backlog's way; seconds count from the link's coming up."""

    frames: int
    first_s: float
    drained_s: float
    proved_s: float
    control_s: float
    repeats: int

    def figures(self, sync_interval: str) -> list[Figure]:
        """Return what goes into the table."""
        name = f'sync_interval "{sync_interval}"'
        rate = self.frames / (self.drained_s - self.first_s)
        note = f"{self.frames:,} frames of {FRAME_POINTS} points"
        return [
            Figure(f"{name}: first frame", self.first_s, "s"),
            Figure(f"{name}: drained", self.drained_s, "s", note=note),
            Figure(f"{name}: frames", rate, "frames/s"),
            Figure(f"{name}: points", rate * FRAME_POINTS, "points/s"),
            Figure(f"{name}: proved complete", self.proved_s, "s"),
            Figure(f"{name}: proof after drained", self.proved_s - self.drained_s, "s"),
            Figure(f"{name}: control plane", self.control_s / self.frames * 1e6, "us/frame"),
            Figure(f"{name}: repeats", self.repeats, "frames"),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Drain one backlog with either setting, print the table, and return it."""
    figures: list[Figure] = []
    for sync_interval in _SYNC_INTERVALS:
        with scratch.directory("hub_drain") as directory:
            drain = asyncio.run(_drain(directory, 5_000 if quick else 50_000, sync_interval))
            figures += drain.figures(sync_interval)
    return report("hub_drain: a backlog over loopback, by the hub's sync_interval", figures)


async def _drain(directory: Path, frames: int, sync_interval: str) -> Drain:
    clock = SystemClock()
    async with (
        vehicle(directory, linked=False, hub_sync_interval=sync_interval) as rig,
        rig.device.connection() as leaf,
        rig.hub.connection() as hub,
    ):
        await publish_frames(leaf, frames)
        status = await rig.appended(leaf)
        last_seq = status["lanes"]["bulk"]["last_seq"]
        start_ns, used_s = clock.now_ns(), cpu_s(rig.hub.control.pid)
        await rig.relay.heal()
        await rig.proved(hub, last_seq, _TIMEOUT_S)
        proved_s = (clock.now_ns() - start_ns) / 1e9
        control_s = cpu_s(rig.hub.control.pid) - used_s
        # The server's own stamps: one that is busy storing answers no question meanwhile.
        info = await JetStreamApi(hub).request("STREAM.INFO.UP_00")
        first_s, last_s = (
            datetime.fromisoformat(info["state"][key]).timestamp() - start_ns / 1e9
            for key in ("first_ts", "last_ts")
        )
        repeats = await require_all_frames(hub, last_seq)
    return Drain(frames, first_s, last_s, proved_s, control_s, repeats)
