"""One hub: idle, with a trickle, and started again."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Set as AbstractSet
from pathlib import Path

from backhaul_codec.kinds import BULK, LIVE
from backhaul_runtime.clock import SystemClock
from benchmarks.figures import Figure, at_most
from benchmarks.hub.thousand_leafs.fleet import TIMEOUT_S, Fleet, Size, fleet_at
from benchmarks.hub.thousand_leafs.measured import ages, core_figures, memory_figures, said, spread
from tests.support.errors import TrialError
from tests.support.leafs.arrivals import Arrivals
from tests.support.rig.parts import HubRig
from tests.support.rig.vehicle import HUB_WATERMARK_S

AIM_LIVE_S = 20.0
LOOK_S = 0.25
_FLEET = 100_000
_TRICKLE_S = 10.0
_QUIET_S = 30.0
"""After so long the hub has confirmed the last messages of vehicles that came to rest: watermarks come each 20 s."""
_AIM_MBIT_S = 2.0
_RESTART_S_MAX = 60.0


async def one_hub(directory: Path, size: Size, rows: AbstractSet[str]) -> list[Figure]:
    """Measure links at one server: idle, with a trickle, and after both hub processes were killed."""
    hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, size.links) as fleet:
        await fleet.settled()
        figures = said(memory_figures(fleet, "one hub"))
        if "a" in rows:
            figures += said(await _idle(fleet, size.idle_s))
            figures += said(await _trickle(fleet, size.trickle_s))
        if "b" in rows:
            figures += said(await _restart(fleet))
    return figures


async def _idle(fleet: Fleet, seconds: int) -> list[Figure]:
    await asyncio.sleep(_QUIET_S)
    bytes_, cores = await fleet.during(asyncio.sleep(seconds), seconds)
    up, down = (
        each * 8 / seconds / fleet.links * _FLEET / 1e6 for each in (bytes_.received, bytes_.sent)
    )
    wire = bytes_.on_the_wire * 8 / seconds / fleet.links * _FLEET / 1e6
    a_day = bytes_.carried / seconds / fleet.links * 86_400 / 1e6
    return [
        Figure("idle: a link", a_day, "MB/day", at_most(0.5), "both ways"),
        Figure("idle: 100,000 links", up + down, "Mbit/s", at_most(_AIM_MBIT_S), "both ways"),
        Figure("idle: 100,000 links, up", up, "Mbit/s"),
        Figure("idle: 100,000 links, down", down, "Mbit/s"),
        Figure("idle: the same with TCP and IP", wire, "Mbit/s", note="52 bytes a segment"),
        *core_figures("idle", cores, fleet.links),
    ]


async def _trickle(fleet: Fleet, seconds: int) -> list[Figure]:
    async with fleet.hub.connection() as client:
        arrivals = Arrivals(client, fleet.shards)
        await arrivals.begin()
        bytes_, cores = await fleet.during(_speak_all(fleet, seconds), seconds)
        await arrivals.until(fleet.hub, fleet.links, BULK, TIMEOUT_S)
    return [
        Figure(
            "trickle: a link", bytes_.carried / fleet.links / seconds * _TRICKLE_S, "bytes/message"
        ),
        *core_figures("trickle", cores, fleet.links, "a message each 10 s"),
    ]


async def _speak_all(fleet: Fleet, seconds: int) -> None:
    """Have each vehicle say a reading every ten seconds."""
    loop = asyncio.get_running_loop()
    began_s, every_s = loop.time(), _TRICKLE_S / fleet.links
    for number in range(round(seconds / every_s)):
        await asyncio.sleep(began_s + number * every_s - loop.time())
        await fleet.speakers.all[number % fleet.links].reading()


async def _restart(fleet: Fleet) -> list[Figure]:
    await asyncio.gather(*(each.tend() for each in fleet.speakers.all))
    hub = fleet.hub
    async with hub.connection(max_reconnect_attempts=-1) as client:
        arrivals = Arrivals(client, fleet.shards)
        await arrivals.begin()
        fleet.speakers.look_s = LOOK_S
        killed_ns, killed_s = SystemClock().now_ns(), asyncio.get_running_loop().time()
        await asyncio.gather(hub.control.stop(signal.SIGKILL), hub.server.stop(signal.SIGKILL))
        await fleet.until_gone()
        await hub.start()
        ready_s = asyncio.get_running_loop().time() - killed_s
        with contextlib.suppress(TrialError):
            await arrivals.until(hub, fleet.links, BULK, _RESTART_S_MAX)
        ups = [at - killed_s for at in fleet.speakers.up_s.values()]
        used = fleet.cpu_s()
        settled_s = math.inf
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RESTART_S_MAX):
                await fleet.settled()
            settled_s = asyncio.get_running_loop().time() - killed_s
    return [
        Figure("restart: control plane is ready", ready_s, "s"),
        *spread("restart: link is up", ups, fleet.links),
        *spread("restart: state is at the hub", ages(arrivals.of(LIVE), killed_ns), fleet.links),
        *spread(
            "restart: telemetry is at the hub",
            ages(arrivals.of(BULK), killed_ns),
            fleet.links,
            aim_s=AIM_LIVE_S,
        ),
        Figure("restart: all idle again", settled_s, "s"),
        Figure("restart: control plane until then", used[0] / fleet.links * 1e3, "core-ms/link"),
        Figure("restart: server until then", used[1] / fleet.links * 1e3, "core-ms/link"),
    ]
