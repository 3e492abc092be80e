"""What a day's drain stands beside: what a hub takes of several vehicles, and a link of 1 Mbit/s."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from nats.aio.client import Client

from backhaul_codec.subjects import parse_uplink
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least
from benchmarks.link.slow_link import backlog_over
from tests.support.backlog import publish_bodies
from tests.support.day_points import NODE, POINTS_A_SECOND, Tally, frames
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import HUB_WATERMARK_S, Vehicle
from tests.support.stream_content import batches

FLEET = 4
LINK_BYTES_S, LINK_ROUND_TRIP_S = 125_000.0, 0.05
_DRAIN_S = 400.0


@dataclass(slots=True)
class Arrived:
    """When the frames in UP were stored, by the server's own stamps."""

    frames: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def points_s(self) -> float:
        """Return points a second, from the first frame to the last."""
        return self.frames * POINTS_A_SECOND / max(1e-9, (self.last_ns - self.first_ns) / 1e9)


async def read_up(hub: Client, tallies: Mapping[str, Tally]) -> Arrived:
    """Have each device's tally take in what UP holds of its bulk lane; return when it came."""
    arrived = Arrived()
    async for batch in batches(hub, "UP_00"):
        stored = [(parse_uplink(each.subject), each) for each in batch]
        bulk = [(uplink.device, each) for uplink, each in stored if uplink.letter == "f"]
        if not bulk:
            continue
        arrived.first_ns = arrived.first_ns or bulk[0][1].stored_ns
        arrived.last_ns = bulk[-1][1].stored_ns
        arrived.frames += len(bulk)
        for device in {device for device, _ in bulk}:
            tallies[device].take([each.body for whose, each in bulk if whose == device])
    return arrived


async def fleet(directory: Path, seconds: int) -> Arrived:
    """Have some vehicles keep the same frames with no hub there, and drain all at once."""
    bodies = await asyncio.to_thread(frames, 0, seconds)
    hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with AsyncExitStack() as stack:
        await hub.init()
        stack.push_async_callback(hub.stop)
        await hub.start()
        names = [f"VID-{number:03}" for number in range(FLEET)]
        vehicles = [
            Vehicle(hub, await DeviceRig.add(hub, name, directory / name)) for name in names
        ]
        await hub.stop()
        for each in vehicles:
            stack.push_async_callback(each.device.stop)
            await each.device.start()
            async with each.device.connection() as leaf:
                await publish_bodies(leaf, NODE, bodies)
                await each.appended(leaf)
        await hub.start()
        client = await stack.enter_async_context(hub.connection())
        for each in vehicles:
            await each.proved(client, seconds, _DRAIN_S)
        tallies = {name: Tally(seconds) for name in names}
        arrived = await read_up(client, tallies)
    for name, tally in tallies.items():
        tally.require_exact(name)
    return arrived


async def over_link(directory: Path, seconds: int) -> list[Figure]:
    """Drain a part of the day over a narrow link, an event every few seconds beside it."""
    link = partial(ShapedRelay, rate_bytes_s=LINK_BYTES_S, round_trip_s=LINK_ROUND_TRIP_S)
    bodies = await asyncio.to_thread(frames, 0, seconds)
    outcome = await backlog_over(link, directory, NODE, bodies, limit_s=_DRAIN_S)
    if outcome.arrived != outcome.messages:
        raise BenchmarkError(f"{outcome.arrived} of {outcome.messages} frames came over the link")
    name = f"{LINK_BYTES_S * 8 / 1e6:g} Mbit/s, {LINK_ROUND_TRIP_S * 1000:g} ms"
    points, payload = seconds * POINTS_A_SECOND, sum(map(len, bodies))
    note = f"{points:,} points in {outcome.drained_s:.0f} s; {outcome.window}"
    return [
        Figure(f"{name}: of the link filled", 100 * outcome.filled, "%", at_least(85), note),
        Figure(f"{name}: drained", points / outcome.drained_s, "points/s"),
        Figure(
            f"{name}: on the link",
            outcome.link_bytes / points,
            "bytes/point",
            note=f"frames alone {payload / points:.2f}",
        ),
        Figure(
            f"{name}: event meanwhile, median",
            median(outcome.waits_s or [0]),
            "s",
            note=f"{len(outcome.waits_s)} events",
        ),
    ]
