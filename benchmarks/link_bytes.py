"""Measure what a link carries: bytes per point while a vehicle drives, bytes a minute while idle.

Counted at the relay, both directions, everything included: TCP payload of the leaf protocol,
heartbeats, flow control, watermarks. Not counted: TCP and IP headers, the connection's set-up.
Beside it the same readings as one JSON message each, sourced by plain NATS (see `plain_link`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backhaul_agent.client import connect
from backhaul_runtime.clock import SystemClock
from tests.support.errors import LostDataError
from tests.support.rig.relay import Relay
from tests.support.rig.vehicle import connection, vehicle
from tests.support.stream_content import Tail

from . import scratch
from .figures import Figure, report
from .link_ends import AgentPublisher, Arrivals, PlainPublisher, driving
from .plain_link import HUB_STREAM, plain_link

if TYPE_CHECKING:
    from .link_ends import Publisher

POINTS_PER_S = 100.0
_TIMEOUT_S = 60.0
# By default a frame waits at most 1 s for more points, so that the hub's picture is fresh.
_PATIENT_S = 10.0
# A watermark is told at most every 5 s: the last one of a drive belongs to it.
_AFTER_S = 6.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What one kind of link carried."""

    points: int
    up_bytes: int
    down_bytes: int
    idle_up_per_min: float
    idle_down_per_min: float

    @property
    def per_point(self) -> float:
        """Bytes in both directions for each point, heartbeats and all."""
        return (self.up_bytes + self.down_bytes) / self.points

    def figures(self, name: str) -> list[Figure]:
        """Return what goes into the table."""
        idle = self.idle_up_per_min + self.idle_down_per_min
        return [
            Figure(
                f"{name}: driving",
                self.per_point,
                "B/point",
                note=f"{self.points:,} points, {self.up_bytes:,} B up, {self.down_bytes:,} B down",
            ),
            Figure(
                f"{name}: idle",
                idle,
                "B/min",
                note=f"{self.idle_up_per_min:,.0f} up, {self.idle_down_per_min:,.0f} down;"
                f" {idle * 1440 / 1e6:.1f} MB a day",
            ),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Drive over all kinds of link at the same time, print the table, and return it."""
    with scratch.directory("link_bytes") as directory:
        ours, patient, plain = asyncio.run(_all(directory, 15.0 if quick else 60.0))
    figures = [
        *ours.figures("backhaul"),
        *patient.figures(f"backhaul, frames of up to {_PATIENT_S:.0f} s"),
        *plain.figures("plain JSON"),
        Figure("driving: plain JSON / backhaul", plain.per_point / ours.per_point, ""),
    ]
    return report(
        f"link_bytes: {POINTS_PER_S:.0f} points a second, both directions of the link", figures
    )


async def _all(directory: Path, seconds: float) -> list[Carried]:
    patient = f"[frame]\nage_s_max = {_PATIENT_S}\n"
    async with asyncio.TaskGroup() as tasks:
        drives = [
            tasks.create_task(_ours(directory / "ours", seconds)),
            tasks.create_task(_ours(directory / "patient", seconds, patient)),
            tasks.create_task(_plain(directory, seconds)),
        ]
    return [drive.result() for drive in drives]


async def _ours(directory: Path, seconds: float, agent_settings: str = "") -> Carried:
    directory.mkdir()
    arrivals = Arrivals()
    async with (
        vehicle(directory, agent_settings=agent_settings) as rig,
        rig.hub.connection() as hub,
        connect(rig.device.url) as agent,
    ):
        tail = Tail(hub, "UP_00", arrivals.ours)
        await tail.start()
        await rig.sourced(hub)
        return await _carried(rig.relay, AgentPublisher(agent), arrivals, tail, seconds)


async def _plain(directory: Path, seconds: float) -> Carried:
    arrivals = Arrivals()
    async with (
        plain_link(directory) as link,
        connection(link.hub_url) as hub,
        connection(link.leaf_url) as leaf,
    ):
        tail = Tail(hub, HUB_STREAM, arrivals.plain)
        await tail.start()
        return await _carried(link.relay, PlainPublisher(leaf), arrivals, tail, seconds)


async def _carried(
    relay: Relay, publisher: Publisher, arrivals: Arrivals, tail: Tail, seconds: float
) -> Carried:
    await asyncio.sleep(_AFTER_S)  # what the set-up has set in motion
    up_bytes, down_bytes = relay.up_bytes, relay.down_bytes
    async with driving(publisher, POINTS_PER_S, SystemClock()):
        await asyncio.sleep(seconds)
    await tail.until(lambda: arrivals.points >= publisher.kept, _TIMEOUT_S, "all points")
    if arrivals.points != publisher.kept:
        raise LostDataError("link_bytes", missing=0, doubled=arrivals.points - publisher.kept)
    await asyncio.sleep(_AFTER_S)
    up_bytes, down_bytes = relay.up_bytes - up_bytes, relay.down_bytes - down_bytes
    idle_up_bytes, idle_down_bytes = relay.up_bytes, relay.down_bytes
    await asyncio.sleep(seconds)
    return Carried(
        publisher.kept,
        up_bytes,
        down_bytes,
        (relay.up_bytes - idle_up_bytes) / seconds * 60,
        (relay.down_bytes - idle_down_bytes) / seconds * 60,
    )
