"""Lanes that are sourced: a backlog, and what twenty vehicles say over each link."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Set as AbstractSet
from itertools import count
from pathlib import Path

from backhaul_codec.kinds import BULK
from backhaul_hub.nats.jetstream import JetStreamApi
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure
from benchmarks.hub.hub_fleet import all_read
from benchmarks.hub.thousand_leafs.fleet import POLL_S, TIMEOUT_S, Fleet, Size, fleet_at
from benchmarks.hub.thousand_leafs.measured import said
from tests.support.leafs.arrivals import Arrivals
from tests.support.rig.parts import HubRig
from tests.support.rig.vehicle import HUB_WATERMARK_S

_DEVICES_WORTH = 20
_FRAMES_MIN = 6


async def sourced(directory: Path, size: Size, _: AbstractSet[str]) -> list[Figure]:
    """Measure lanes of half as many links that are sourced for as long as it lasts."""
    links = math.ceil(size.links / 2)
    hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, links, dials=False, rest=False) as fleet:
        for each in fleet.speakers.all:
            await each.fill(size.backlog)
        async with hub.connection() as client:
            arrivals = Arrivals(client, fleet.shards)
            await arrivals.begin()
            before = fleet.cpu_s()
            fleet.farm.dial()
            await arrivals.until(hub, links, BULK, TIMEOUT_S)
            for tries in count():
                if arrivals.messages >= links * size.backlog:
                    break
                if tries * POLL_S > TIMEOUT_S:
                    raise BenchmarkError(f"{arrivals.messages} messages of the backlog came")
                await asyncio.sleep(POLL_S)
                await arrivals.look()
            await all_read(hub, JetStreamApi(client), fleet.shards)
        used = [now - then for now, then in zip(fleet.cpu_s(), before, strict=True)]
        seconds = (arrivals.last_stored_ns - arrivals.first_stored_ns) / 1e9
        figures = [
            Figure("backlog: links; messages", links, "", note=f"{arrivals.messages:,} messages"),
            Figure("backlog: drained", arrivals.messages / seconds, "messages/s"),
            Figure("backlog: control plane", used[0] / arrivals.messages * 1e6, "us/message"),
            Figure("backlog: server", used[1] / arrivals.messages * 1e6, "us/message"),
        ]
        return said(figures) + said(await _live(fleet, size))


async def _live(fleet: Fleet, size: Size) -> list[Figure]:
    """Have each link carry what twenty vehicles say."""
    messages_s = fleet.links * _DEVICES_WORTH * _FRAMES_MIN / 60
    total = round(messages_s * size.trickle_s)
    loop = asyncio.get_running_loop()

    async def speak() -> None:
        began_s = loop.time()
        for number in range(total):
            await asyncio.sleep(began_s + number / messages_s - loop.time())
            await fleet.speakers.all[number % fleet.links].reading()

    began_s = loop.time()
    _, cores = await fleet.during(speak(), 1.0)
    seconds = loop.time() - began_s
    return [
        Figure("sourced, live", total / seconds, "messages/s", note="20 vehicles' worth a link"),
        Figure("sourced, live: control plane", cores[0] / seconds, "cores"),
        Figure("sourced, live: server", cores[1] / seconds, "cores"),
    ]
