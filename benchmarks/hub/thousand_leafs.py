"""A thousand real leaf links at one hub and at three servers: idle, with a trickle, a restart, a backlog.

Servers at both ends, their links, streams and durables, and the hub's control plane are real; ten nats-servers hold the
vehicles, a hundred accounts each. In the place of agents something speaks that says over the link what an idle agent says
(tests/support/leafs). Bytes are the kernel's count for the TCP connections of the hub's leaf ports, without headers of TCP and IP, and without TLS.

`--rows`: a idle and with a trickle, b a restart of the hub, c three servers of which one is killed, d a backlog of
lanes that are sourced. `--vehicles`: how many links. With `--quick` all of it is done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from backhaul_codec.kinds import BULK, LIVE
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, readable, report
from benchmarks.gateway.options import CHOSEN, Options
from benchmarks.hub.hub_fleet import all_read
from tests.support.errors import TrialError
from tests.support.leafs.arrivals import Arrivals
from tests.support.leafs.farm import LeafFarm, enrol, farm_of, name_leafs
from tests.support.leafs.stand_in import StandIns, speaking
from tests.support.leafs.tcp_bytes import TcpBytes, tcp_bytes
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.parts import HubRig, Part
from tests.support.rig.vehicle import HUB_WATERMARK_S, cpu_s

_EACH_SERVER = 100
_EACH_SHARD = 250
_FLEET = 100_000
_PING_S = 28
_TRICKLE_S = 10.0
_DEVICES_WORTH = 20
_FRAMES_MIN = 6
_AIM_MBIT_S = 2.0
_AIM_LIVE_S = 20.0
_TIMEOUT_S = 180.0
_RESTART_S_MAX = 60.0
_POLL_S = 0.1
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it."""

    links: int
    idle_s: int
    trickle_s: int
    backlog: int
    """Messages of each link."""


Step = Callable[[Path, Size, AbstractSet[str]], Awaitable[list[Figure]]]


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
        async with asyncio.timeout(_TIMEOUT_S):
            while not condition():
                if self.speakers.broken:
                    raise BenchmarkError(f"{what}: {self.speakers.broken[0]!r}")
                await asyncio.sleep(_POLL_S)

    async def until_gone(self) -> None:
        """Wait until no link is up, as the leaf servers see it."""
        await self.until(lambda: not self.speakers.up_s, "all links gone")

    async def settled(self) -> None:
        """Wait until all vehicles are idle: their lanes are pushed, and IN sleeps."""
        await self.until(lambda: self.speakers.settled == self.links, "all idle")


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, and return it."""
    chosen = CHOSEN.get(Options())
    links = chosen.vehicles or (50 if quick else 1_000)
    size = Size(links, _PING_S, 10, 20) if quick else Size(links, 2 * _PING_S, 10, 120)
    found: list[Figure] = []
    for figures in asyncio.run(_measured(size, chosen.rows, at_once=quick)):
        found += figures
    return report(f"thousand_leafs: {links:,} leaf links", found, links=links)


async def _measured(size: Size, rows: AbstractSet[str], *, at_once: bool) -> list[list[Figure]]:
    steps = {"ab": _one_hub, "c": _three_servers, "d": _sourced}
    few = asyncio.Semaphore(len(steps) if at_once else 1)

    async def measured(step: Step, asked: AbstractSet[str]) -> list[Figure]:
        async with few:
            with scratch.directory("thousand_leafs") as directory:
                return await step(directory, size, asked)

    asked = {letters: rows & set(letters) for letters in steps}
    return await asyncio.gather(
        *(measured(step, asked[letters]) for letters, step in steps.items() if asked[letters])
    )


@asynccontextmanager
async def fleet_at(
    directory: Path, hub: HubRig, links: int, *, dials: bool = True, rest: bool = True
) -> AsyncIterator[Fleet]:
    """Run a hub with so many vehicles."""
    shards = math.ceil(links / _EACH_SHARD)
    await hub.init("--shards", str(shards))
    name_leafs(hub)
    vehicles = await enrol(hub, [f"VID-{number:05d}" for number in range(links)], directory / "veh")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.stop)
        await hub.start()
        empty = _memory(hub)
        farm = await stack.enter_async_context(
            farm_of(vehicles, _EACH_SERVER, directory, dials=dials)
        )
        speakers = await stack.enter_async_context(speaking(farm, SystemClock(), rest=rest))
        yield Fleet(hub, farm, speakers, empty)


async def _one_hub(directory: Path, size: Size, rows: AbstractSet[str]) -> list[Figure]:
    hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, size.links) as fleet:
        await fleet.settled()
        figures = said(_memory_figures(fleet, "one hub"))
        if "a" in rows:
            figures += said(await _idle(fleet, size.idle_s))
            figures += said(await _trickle(fleet, size.trickle_s))
        if "b" in rows:
            figures += said(await _restart(fleet))
    return figures


def said(figures: list[Figure]) -> list[Figure]:
    """Print figures as they come: the whole table takes minutes."""
    for each in figures:
        print(f"  {each.name}: {readable(each.value)} {each.unit} {each.note}", flush=True)
    return figures


async def _idle(fleet: Fleet, seconds: int) -> list[Figure]:
    bytes_, cores = await _during(fleet, asyncio.sleep(seconds), seconds)
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
        *_core_figures("idle", cores, fleet.links),
    ]


async def _trickle(fleet: Fleet, seconds: int) -> list[Figure]:
    async with fleet.hub.connection() as client:
        arrivals = Arrivals(client, _shards(fleet))
        await arrivals.begin()
        bytes_, cores = await _during(fleet, _speak_all(fleet, seconds), seconds)
        await arrivals.until(fleet.hub, fleet.links, BULK, _TIMEOUT_S)
    return [
        Figure(
            "trickle: a link", bytes_.carried / fleet.links / seconds * _TRICKLE_S, "bytes/message"
        ),
        *_core_figures("trickle", cores, fleet.links, "a message each 10 s"),
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
        arrivals = Arrivals(client, _shards(fleet))
        await arrivals.begin()
        fleet.speakers.look_s = _LOOK_S
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
        *_spread("restart: link is up", ups, fleet.links),
        *_spread("restart: state is at the hub", _ages(arrivals.of(LIVE), killed_ns), fleet.links),
        *_spread(
            "restart: telemetry is at the hub",
            _ages(arrivals.of(BULK), killed_ns),
            fleet.links,
            aim_s=_AIM_LIVE_S,
        ),
        Figure("restart: all idle again", settled_s, "s"),
        Figure("restart: control plane until then", used[0] / fleet.links * 1e3, "core-ms/link"),
        Figure("restart: server until then", used[1] / fleet.links * 1e3, "core-ms/link"),
    ]


async def _three_servers(directory: Path, size: Size, _: AbstractSet[str]) -> list[Figure]:
    hub = ClusterRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, size.links) as fleet:
        await fleet.settled()
        figures = said(_memory_figures(fleet, "three servers"))
        _, cores = await _during(fleet, asyncio.sleep(size.trickle_s), size.trickle_s)
        figures += said(_core_figures("three servers, idle", cores, fleet.links))
        async with hub.connection(max_reconnect_attempts=-1) as client:
            figures += said(await _kill_one(fleet, hub, Arrivals(client, _shards(fleet))))
    return figures


async def _kill_one(fleet: Fleet, hub: ClusterRig, arrivals: Arrivals) -> list[Figure]:
    await arrivals.begin()
    fleet.speakers.look_s = _LOOK_S
    there = [id_ for id_, (_, port) in fleet.speakers.links.items() if port == hub.leaf_ports["c"]]
    killed_ns, killed_s = SystemClock().now_ns(), asyncio.get_running_loop().time()
    await hub.servers["c"].stop(signal.SIGKILL)
    speaking_on = asyncio.create_task(_speak_until_heard(fleet, arrivals))
    try:
        await arrivals.until(hub, fleet.links, BULK, _TIMEOUT_S)
        up_s = fleet.speakers.up_s
        await fleet.until(lambda: all(up_s.get(id_, 0) > killed_s for id_ in there), "all links")
    finally:
        speaking_on.cancel()
        await asyncio.gather(speaking_on, return_exceptions=True)
    moved = [up_s[id_] - killed_s for id_ in there]
    await hub.start_server("c")
    return [
        Figure("one of three killed: links that moved", len(moved), ""),
        *_spread("one of three killed: link is up", moved, len(there)),
        *_spread(
            "one of three killed: telemetry at the hub",
            _ages(arrivals.of(BULK), killed_ns),
            fleet.links,
            aim_s=_AIM_LIVE_S,
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


async def _sourced(directory: Path, size: Size, _: AbstractSet[str]) -> list[Figure]:
    links = math.ceil(size.links / 2)
    hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
    async with fleet_at(directory, hub, links, dials=False, rest=False) as fleet:
        for each in fleet.speakers.all:
            await each.fill(size.backlog)
        async with hub.connection() as client:
            arrivals = Arrivals(client, _shards(fleet))
            await arrivals.begin()
            before = fleet.cpu_s()
            fleet.farm.dial()
            await arrivals.until(hub, links, BULK, _TIMEOUT_S)
            for tries in count():
                if arrivals.messages >= links * size.backlog:
                    break
                if tries * _POLL_S > _TIMEOUT_S:
                    raise BenchmarkError(f"{arrivals.messages} messages of the backlog came")
                await asyncio.sleep(_POLL_S)
                await arrivals.look()
            await all_read(hub, JetStreamApi(client), _shards(fleet))
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
    _, cores = await _during(fleet, speak(), 1.0)
    seconds = loop.time() - began_s
    return [
        Figure("sourced, live", total / seconds, "messages/s", note="20 vehicles' worth a link"),
        Figure("sourced, live: control plane", cores[0] / seconds, "cores"),
        Figure("sourced, live: server", cores[1] / seconds, "cores"),
    ]


async def _during(fleet: Fleet, work: object, seconds: float) -> tuple[TcpBytes, list[float]]:
    """Return the bytes of all links meanwhile, and the cores of control plane and servers."""
    bytes_, used = await tcp_bytes(*fleet.leaf_ports()), fleet.cpu_s()
    await work  # type: ignore[misc]
    cores = [(now - then) / seconds for now, then in zip(fleet.cpu_s(), used, strict=True)]
    return (await tcp_bytes(*fleet.leaf_ports())).since(bytes_), cores


def _memory_figures(fleet: Fleet, where: str) -> list[Figure]:
    more = [
        (now - then) / fleet.links / 1e3
        for now, then in zip(fleet.memory_bytes(), fleet.empty_bytes, strict=True)
    ]
    return [
        Figure(f"{where}: control plane", more[0], "kB/link", note="resident, beside no links"),
        Figure(f"{where}: servers", sum(more[1:]), "kB/link", note="all of them"),
    ]


def _core_figures(what: str, cores: Sequence[float], links: int, note: str = "") -> list[Figure]:
    return [
        Figure(f"{what}: {part}", each / links * 1e6, "us/s a link", note=note)
        for part, each in zip(("control plane", "servers"), cores, strict=True)
    ]


def _spread(
    what: str, ages_s: Sequence[float], links: int, aim_s: float | None = None
) -> list[Figure]:
    """Return when half, nearly all and all of so many were there; those that never were count as well."""
    ordered = sorted(ages_s) + [math.inf] * (links - len(ages_s))
    parts = {"half": 0.5, "90%": 0.9, "all": 1.0}
    return [
        Figure(
            f"{what}, {name}",
            ordered[math.ceil(part * links) - 1] if links else math.nan,
            "s",
            at_most(aim_s) if aim_s and name == "all" else None,
        )
        for name, part in parts.items()
    ]


def _ages(first_ns: dict[str, int], since_ns: int) -> list[float]:
    return [(at - since_ns) / 1e9 for at in first_ns.values()]


def _shards(fleet: Fleet) -> int:
    return math.ceil(fleet.links / _EACH_SHARD)


def _servers(hub: HubRig) -> list[Part]:
    return list(hub.servers.values()) if isinstance(hub, ClusterRig) else [hub.server]


def _memory(hub: HubRig) -> list[int]:
    return [psutil.Process(each.pid).memory_info().rss for each in (hub.control, *_servers(hub))]
