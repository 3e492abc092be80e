"""Measure what a vehicle with nothing to say costs on its link: a day of visits, or of being there.

A metered vehicle makes 24 visits one after another, each with its dial, login and set-up, as it would
once an hour; bytes of both directions at the relay. Beside it one that is always there, for a few
minutes, scaled to a day, and plain NATS with one sourced stream likewise. What asking the hub for the
time costs is the difference to a third one, which asks every second, divided by how often it did.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from nats.aio.client import Client

from backhaul_agent.config import ClockConfig
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.link.plain_link import plain_link
from tests.support.rig.relay import Relay
from tests.support.rig.vehicle import VehicleRig, vehicle

VISITS = 24
DAY_S = 86_400
_VISIT_S_MAX = 60.0
_SETTLE_S = 8.0


class Day(NamedTuple):
    """What a vehicle that is always there costs, scaled to a day."""

    bytes: float
    clock_answers: float


def run(*, quick: bool) -> dict[str, object]:
    """Make the visits, and count the bytes of links that stay, at the same time."""
    with scratch.directory("idle_day") as directory:
        visit, visit_s, always, asking, plain = asyncio.run(_all(directory, quick=quick))
    day = VISITS * visit
    exchange = (asking.bytes - always.bytes) / (asking.clock_answers - always.clock_answers)
    interval_s = ClockConfig().interval_s
    figures = [
        Figure("metered: bytes of a visit", visit, "B", note=f"it lasts {visit_s:.1f} s"),
        Figure(f"metered: {VISITS} visits", day / 1e6, "MB/day", at_most(1)),
        Figure("always there", always.bytes / 1e6, "MB/day"),
        Figure("plain NATS, always there", plain / 1e6, "MB/day", note="one stream, one direction"),
        Figure("always there / metered", always.bytes / day, ""),
        Figure("asking for the time, once", exchange, "B"),
        Figure(
            "asking for the time",
            exchange * DAY_S / interval_s / 1e3,
            "KB/day",
            note=f"every {interval_s:.0f} s; in what is always there",
        ),
    ]
    return report("idle_day: nothing to send, both directions of the link", figures)


async def _all(directory: Path, *, quick: bool) -> tuple[float, float, Day, Day, float]:
    for name in ("metered", "always", "asking"):
        (directory / name).mkdir()
    idle_s = 30.0 if quick else 180.0
    async with asyncio.TaskGroup() as tasks:
        metered = tasks.create_task(_metered(directory / "metered", 3 if quick else VISITS))
        always = tasks.create_task(_always(directory / "always", idle_s))
        asking = tasks.create_task(
            _always(directory / "asking", idle_s, "[clock]\ninterval_s = 1.0\n")
        )
        plain = tasks.create_task(_plain(directory, idle_s))
    return (*metered.result(), always.result(), asking.result(), plain.result())


async def _metered(directory: Path, visits: int) -> tuple[float, float]:
    """Return bytes and seconds of a visit, the mean; the first one, with its set-up, left out."""
    async with (
        vehicle(directory, link_mode="scheduled", schedule_s=10.0) as rig,
        rig.device.connection() as leaf,
    ):
        await _back_from(rig, leaf, 1)
        before = _bytes(rig.relay)
        lasted_s = [await _back_from(rig, leaf, 2 + number) for number in range(visits)]
        return (_bytes(rig.relay) - before) / visits, sum(lasted_s) / visits


async def _back_from(rig: VehicleRig, leaf: Client, visit: int) -> float:
    """Wait until a visit is over; return how long it lasted, in seconds."""
    loop = asyncio.get_running_loop()
    began_s: float | None = None
    link: dict[str, object] = {}
    end_s = loop.time() + _VISIT_S_MAX
    while loop.time() < end_s:
        link = (await rig.status(leaf))["link"]
        if int(str(link["visits"])) >= visit:
            began_s = began_s or loop.time()
            if link["phase"] == "idle":
                return loop.time() - began_s
        await asyncio.sleep(0.05)
    raise BenchmarkError(f"visit {visit} does not end: {link}")


async def _always(directory: Path, seconds: float, settings: str = "") -> Day:
    async with (
        vehicle(directory, agent_settings=settings) as rig,
        rig.hub.connection() as hub,
        rig.device.connection() as leaf,
    ):
        await rig.sourced(hub)
        await asyncio.sleep(_SETTLE_S)
        answers = (await rig.status(leaf))["clock"]["answers"]
        sent = await _a_day(rig.relay, seconds)
        answers = (await rig.status(leaf))["clock"]["answers"] - answers
        return Day(sent, answers / seconds * DAY_S)


async def _plain(directory: Path, seconds: float) -> float:
    async with plain_link(directory) as link:
        await asyncio.sleep(_SETTLE_S)
        return await _a_day(link.relay, seconds)


async def _a_day(relay: Relay, seconds: float) -> float:
    before = _bytes(relay)
    await asyncio.sleep(seconds)
    return (_bytes(relay) - before) / seconds * DAY_S


def _bytes(relay: Relay) -> int:
    return relay.up_bytes + relay.down_bytes
