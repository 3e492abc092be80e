"""Three servers, of which one is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Set as AbstractSet
from pathlib import Path

from backhaul_codec.kinds import BULK
from backhaul_runtime.clock import SystemClock
from benchmarks.figures import Figure
from benchmarks.hub.thousand_leafs.fleet import TIMEOUT_S, Fleet, Size, fleet_at
from benchmarks.hub.thousand_leafs.measured import ages, core_figures, memory_figures, said, spread
from benchmarks.hub.thousand_leafs.one_hub import AIM_LIVE_S, LOOK_S
from tests.support.leafs.arrivals import Arrivals
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.vehicle import HUB_WATERMARK_S


async def three_servers(directory: Path, size: Size, _: AbstractSet[str]) -> list[Figure]:
    """Measure links spread over three servers, one of which is killed."""
    hub = ClusterRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, size.links) as fleet:
        await fleet.settled()
        figures = said(memory_figures(fleet, "three servers"))
        cores = (await fleet.during(asyncio.sleep(size.trickle_s), size.trickle_s))[1]
        figures += said(core_figures("three servers, idle", cores, fleet.links))
        async with hub.connection(max_reconnect_attempts=-1) as client:
            figures += said(await _kill_one(fleet, hub, Arrivals(client, fleet.shards)))
    return figures


async def _kill_one(fleet: Fleet, hub: ClusterRig, arrivals: Arrivals) -> list[Figure]:
    await arrivals.begin()
    fleet.speakers.look_s = LOOK_S
    there = [id_ for id_, (_, port) in fleet.speakers.links.items() if port == hub.leaf_ports["c"]]
    killed_ns, killed_s = SystemClock().now_ns(), asyncio.get_running_loop().time()
    await hub.servers["c"].stop(signal.SIGKILL)
    speaking_on = asyncio.create_task(_speak_until_heard(fleet, arrivals))
    try:
        await arrivals.until(hub, fleet.links, BULK, TIMEOUT_S)
        up_s = fleet.speakers.up_s
        await fleet.until(lambda: all(up_s.get(id_, 0) > killed_s for id_ in there), "all links")
    finally:
        speaking_on.cancel()
        await asyncio.gather(speaking_on, return_exceptions=True)
    moved = [up_s[id_] - killed_s for id_ in there]
    await hub.start_server("c")
    return [
        Figure("one of three killed: links that moved", len(moved), ""),
        *spread("one of three killed: link is up", moved, len(there)),
        *spread(
            "one of three killed: telemetry at the hub",
            ages(arrivals.of(BULK), killed_ns),
            fleet.links,
            aim_s=AIM_LIVE_S,
        ),
    ]


async def _speak_until_heard(fleet: Fleet, arrivals: Arrivals) -> None:
    """Have each vehicle of which nothing new has come say a reading, every two seconds."""
    while True:
        heard = arrivals.of(BULK).keys()
        for each in fleet.speakers.all:
            if each.vehicle.id not in heard:
                await each.reading()
        await asyncio.sleep(2.0)
