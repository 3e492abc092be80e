"""A hub with many vehicles' links, and what is seen of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from backhaul_runtime.clock import SystemClock
from benchmarks.errors import BenchmarkError
from benchmarks.gateway.options import CHOSEN, Options
from tests.support.leafs.farm import LeafFarm, enrol, farm_of, name_leafs
from tests.support.leafs.stand_in import StandIns, speaking
from tests.support.leafs.tcp_bytes import TcpBytes, tcp_bytes
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.parts import HubRig, Part
from tests.support.rig.vehicle import cpu_s

TIMEOUT_S = 180.0
POLL_S = 0.1
_EACH_SERVER = 100
_EACH_SHARD = 250


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it."""

    links: int
    idle_s: int
    trickle_s: int
    backlog: int
    """Messages of each link."""


@dataclass(slots=True)
class Fleet:
    """A hub, and the links of its vehicles."""

    hub: HubRig
    farm: LeafFarm
    speakers: StandIns
    empty_bytes: Sequence[int]
    """Memory of the hub's processes before any link came, the control plane's first."""

    @property
    def links(self) -> int:
        """How many there are."""
        return len(self.farm.vehicles)

    @property
    def shards(self) -> int:
        """How many streams UP has."""
        return shards_for(self.links)

    @property
    def servers(self) -> list[Part]:
        """The hub's servers."""
        return _servers(self.hub)

    def leaf_ports(self) -> list[int]:
        """Return where leafs come in."""
        return list(getattr(self.hub, "leaf_ports", {"": self.hub.leaf_port}).values())

    def memory_bytes(self) -> list[int]:
        """Return the resident memory of the control plane, and of each server."""
        return _memory(self.hub)

    def cpu_s(self) -> list[float]:
        """Return the processor time of the control plane, and of the servers together."""
        return [cpu_s(self.hub.control.pid), sum(cpu_s(each.pid) for each in self.servers)]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so. Raises: BenchmarkError: it is not in three minutes."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                if self.speakers.broken:
                    raise BenchmarkError(f"{what}: {self.speakers.broken[0]!r}")
                await asyncio.sleep(POLL_S)

    async def until_gone(self) -> None:
        """Wait until no link is up, as the leaf servers see it."""
        await self.until(lambda: not self.speakers.up_s, "all links gone")

    async def settled(self) -> None:
        """Wait until all vehicles are idle: their lanes are pushed, and IN sleeps."""
        await self.until(lambda: self.speakers.settled == self.links, "all idle")

    async def during(self, work: Awaitable[object], seconds: float) -> tuple[TcpBytes, list[float]]:
        """Return the bytes of all links meanwhile, and the cores of control plane and servers."""
        bytes_, used = await tcp_bytes(*self.leaf_ports()), self.cpu_s()
        await work
        cores = [(now - then) / seconds for now, then in zip(self.cpu_s(), used, strict=True)]
        return (await tcp_bytes(*self.leaf_ports())).since(bytes_), cores


@asynccontextmanager
async def fleet_at(
    directory: Path, hub: HubRig, links: int, *, dials: bool = True, rest: bool = True
) -> AsyncIterator[Fleet]:
    """Run a hub with so many vehicles."""
    shards = shards_for(links)
    await hub.init("--shards", str(shards))
    name_leafs(hub)
    if not CHOSEN.get(Options()).packed:
        for conf in hub.directory.rglob("hub.conf"):
            text = conf.read_text()
            conf.write_text(text.replace("\nleafnodes {\n", "\nleafnodes {\n  compression: off\n"))
    vehicles = await enrol(hub, [f"VID-{number:05d}" for number in range(links)], directory / "veh")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.stop)
        await hub.start()
        empty = _memory(hub)
        farm = await stack.enter_async_context(
            farm_of(vehicles, _EACH_SERVER, directory, dials=False)
        )
        speakers = await stack.enter_async_context(speaking(farm, SystemClock(), rest=rest))
        if dials:
            await farm.dial_in_turn()
        yield Fleet(hub, farm, speakers, empty)


def shards_for(links: int) -> int:
    """Return how many streams of UP so many vehicles get."""
    return math.ceil(links / _EACH_SHARD)


def _servers(hub: HubRig) -> list[Part]:
    return list(hub.servers.values()) if isinstance(hub, ClusterRig) else [hub.server]


def _memory(hub: HubRig) -> list[int]:
    return [psutil.Process(each.pid).memory_info().rss for each in (hub.control, *_servers(hub))]
