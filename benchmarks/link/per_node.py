"""Measure what streams for every node cost, beside streams that all nodes share.

Thirty nodes with a stream up and a stream down each, and the device's own three; beside it the
device's three alone, with the same thirty nodes' messages in them. Bytes are counted at the relay
as in `gateway`. Then what one message costs on the link beyond its body, and whether either way
lives on a slow link. Read with docs/per-node-streams.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
from nats.aio.msg import Msg

from backhaul_codec import encode_frame
from backhaul_hub.nats.jetstream import JetStreamApi
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, report
from benchmarks.link.lane_rig import SHARED, UP, lane_rig, leaf_subject, node_lanes
from tests.support.errors import TrialError
from tests.support.numbered_points import points
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.stream_content import Tail

if TYPE_CHECKING:
    from benchmarks.link.lane_rig import LaneRig

NODES = 30
_CUT_S = 20.0
_SETTLE_S = 8.0
_TIMEOUT_S = 90.0
_BODY_BYTES = 500
_SLOW_KBIT_S = (20.0, 50.0, 100.0)
_ROUND_TRIP_S = 0.6
_SLOW_S = 60.0
_COUNT = 200
_SIZES = (25, 150, 500, 1200, 2000)


@dataclass(frozen=True, slots=True)
class Resume:
    """Seconds after the link was restored, and what it carried until all was over."""

    up_first_s: float
    up_all_s: float
    down_first_s: float
    down_all_s: float
    carried_bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way costs."""

    streams: int
    setup_s: float
    setup_bytes: int
    idle_up_per_min: float
    idle_down_per_min: float
    leaf_bytes: int
    hub_bytes: int
    leaf_cpu: float
    hub_cpu: float
    resumes: list[Resume]

    @property
    def idle(self) -> float:
        """Bytes a minute in both directions."""
        return self.idle_up_per_min + self.idle_down_per_min

    def figures(self, name: str) -> list[Figure]:
        """Return what goes into the table."""
        up_all = median(resume.up_all_s for resume in self.resumes)
        down_all = median(resume.down_all_s for resume in self.resumes)
        return [
            Figure(f"{name}: streams on the leaf", self.streams, ""),
            Figure(
                f"{name}: idle", self.idle, "B/min",
                note=f"{self.idle_up_per_min:,.0f} up, {self.idle_down_per_min:,.0f} down;"
                f" {self.idle * 1440 / 1e6:.1f} MB a day, {self.idle * 8 / 60e3:.2f} kbit/s",
            ),
            Figure(f"{name}: heartbeats, of 20 kbit/s each way", self._share(20), "%"),
            Figure(f"{name}: heartbeats, of 100 kbit/s each way", self._share(100), "%"),
            Figure(f"{name}: leaf server, resident", self.leaf_bytes / 1e6, "MB"),
            Figure(f"{name}: hub server, resident", self.hub_bytes / 1e6, "MB"),
            Figure(f"{name}: leaf server, idle", 100 * self.leaf_cpu, "% CPU"),
            Figure(f"{name}: hub server, idle", 100 * self.hub_cpu, "% CPU"),
            Figure(
                f"{name}: set up", self.setup_s, "s",
                note=f"link up until every source is heard; {self.setup_bytes:,} B",
            ),
            Figure(
                f"{name}: first message up after a cut",
                median(resume.up_first_s for resume in self.resumes), "s",
                note=f"medians, {len(self.resumes)} cuts of {_CUT_S:.0f} s",
            ),
            Figure(f"{name}: last of {NODES} up", up_all, "s"),
            Figure(
                f"{name}: first message down after a cut",
                median(resume.down_first_s for resume in self.resumes), "s",
            ),
            Figure(f"{name}: last of {NODES} down", down_all, "s"),
            Figure(
                f"{name}: link, until all was over",
                median(resume.carried_bytes for resume in self.resumes), "B",
            ),
        ]  # fmt: skip

    def _share(self, kbit_s: float) -> float:
        """Percent of the fuller direction."""
        return 100 * max(self.idle_up_per_min, self.idle_down_per_min) * 8 / 60e3 / kbit_s


def run(*, quick: bool) -> dict[str, object]:
    """Measure both ways, print the tables, and return them."""
    with scratch.directory("per_node") as directory:
        shared, own = asyncio.run(_both(directory, 20.0 if quick else 30.0, 1 if quick else 2))
        messages = asyncio.run(_messages(directory / "messages"))
        slow_links = asyncio.run(_slow(directory, _SLOW_KBIT_S[:1] if quick else _SLOW_KBIT_S))
    return report(
        f"per_node: {NODES} nodes, streams shared or one of each kind a node",
        [
            *shared.figures("shared"),
            *own.figures("a node"),
            Figure("idle bytes: a node / shared", own.idle / shared.idle, ""),
            *messages,
            *slow_links,
        ],
    )


async def _both(directory: Path, idle_s: float, cuts: int) -> list[Cost]:
    async with asyncio.TaskGroup() as tasks:
        ways = [
            tasks.create_task(_cost(directory / name, nodes, idle_s, cuts))
            for name, nodes in (("shared", 0), ("own", NODES))
        ]
    return [way.result() for way in ways]


async def _cost(directory: Path, nodes: int, idle_s: float, cuts: int) -> Cost:
    async with lane_rig(directory, nodes) as rig:
        await rig.relay.heal()
        setup_s = await rig.live(_TIMEOUT_S)
        setup_bytes = _carried(rig)
        await asyncio.sleep(_SETTLE_S)
        up, down = rig.relay.up_bytes, rig.relay.down_bytes
        leaf_s, hub_s = rig.used()
        await asyncio.sleep(idle_s)
        up, down = rig.relay.up_bytes - up, rig.relay.down_bytes - down
        leaf_cpu, hub_cpu = (
            (now - before) / idle_s for now, before in zip(rig.used(), (leaf_s, hub_s), strict=True)
        )
        resumes = await _resumes(rig, cuts)
        return Cost(
            len(rig.lanes) + len(rig.inward),
            setup_s,
            setup_bytes,
            up * 60 / idle_s,
            down * 60 / idle_s,
            psutil.Process(rig.device.leaf.pid).memory_info().rss,
            psutil.Process(rig.hub.server.pid).memory_info().rss,
            leaf_cpu,
            hub_cpu,
            resumes,
        )


class _Arrivals:
    """When what was published for each node has arrived, up and down."""

    def __init__(self) -> None:
        self.times_s: dict[str, list[float]] = {"up": [], "down": []}
        self.changed = asyncio.Event()

    def up(self, message: Msg) -> None:
        """Take in a message of UP."""
        self._arrived("up")

    async def down(self, message: Msg) -> None:
        """Take in what a stream says of a message from DOWN."""
        self._arrived("down")

    def _arrived(self, way: str) -> None:
        self.times_s[way].append(asyncio.get_running_loop().time())
        self.changed.set()

    async def all(self, count: int) -> None:
        """Wait for so many both ways.

        Raises:
            BenchmarkError: not in time, or there are more.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while min(map(len, self.times_s.values())) < count:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass
        found = {way: len(times) for way, times in self.times_s.items()}
        if found != {"up": count, "down": count}:
            raise BenchmarkError(f"{count} were published each way, {found} arrived")


async def _resumes(rig: LaneRig, cuts: int) -> list[Resume]:
    arrivals = _Arrivals()
    await Tail(rig.hub_client, UP, arrivals.up).start()
    await rig.leaf_client.subscribe("agent.in.>", cb=arrivals.down)
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(cuts):
        await rig.relay.cut()
        await asyncio.sleep(_CUT_S)
        for way in arrivals.times_s.values():
            way.clear()
        await _publish_both_ways(rig)
        carried = _carried(rig)
        began_s = loop.time()
        await rig.relay.heal()
        await arrivals.all(NODES)
        up, down = ([time - began_s for time in way] for way in arrivals.times_s.values())
        await rig.live(_TIMEOUT_S)
        found.append(Resume(up[0], up[-1], down[0], down[-1], _carried(rig) - carried))
        await asyncio.sleep(_SETTLE_S)  # a source that was set up is not touched for 5.5 s
    return found


async def _publish_both_ways(rig: LaneRig) -> None:
    """Publish one message for every node, up and down."""
    leaf, hub = JetStreamApi(rig.leaf_client), JetStreamApi(rig.hub_client)
    body = os.urandom(_BODY_BYTES)
    for lane in node_lanes(NODES):
        node = lane.removeprefix("n_")
        own = lane if rig.nodes else SHARED[1]
        await leaf.publish(leaf_subject(own, f"f.{node}"), body)
        await hub.publish(f"in.{rig.login.id}.{leaf_subject(own, f'p.{node}.limit.%')}", body)


async def _messages(directory: Path) -> list[Figure]:
    """Measure what a message costs beyond its body, heartbeats of that time taken off."""
    async with lane_rig(directory, 0) as rig:
        await rig.relay.heal()
        await rig.live(_TIMEOUT_S)
        await asyncio.sleep(_SETTLE_S)
        before = _carried(rig)
        await asyncio.sleep(_SETTLE_S)
        idle_bytes_s = (_carried(rig) - before) / _SETTLE_S
        frame = encode_frame(points(250, 0), epoch=7, seq=1000)
        bodies = {f"{size:,} B": os.urandom(size) for size in _SIZES}
        bodies[f"frame of 250 points, {len(frame):,} B"] = frame
        figures = []
        arrived: list[int] = []
        tail = Tail(rig.hub_client, UP, lambda message: arrived.append(len(message.data)))
        await tail.start()
        for name, body in bodies.items():
            figures.append(await _overhead(rig, tail, arrived, name, body, idle_bytes_s))
        return figures


async def _overhead(
    rig: LaneRig, tail: Tail, arrived: list[int], name: str, body: bytes, idle_bytes_s: float
) -> Figure:
    loop = asyncio.get_running_loop()
    costs: list[float] = []
    up_cost = 0.0
    for pause_s in (0.0, 0.05):
        count = len(arrived) + _COUNT
        began_s, up, both = loop.time(), rig.relay.up_bytes, _carried(rig)
        for _ in range(_COUNT):
            await rig.leaf_client.publish("p.node00.voltage.%", body)
            await asyncio.sleep(pause_s)
        await tail.until(lambda count=count: len(arrived) >= count, _TIMEOUT_S, "all of them")  # type: ignore[misc]
        await asyncio.sleep(1.5)  # the last round of flow control
        idle = idle_bytes_s * (loop.time() - began_s)
        costs.append((_carried(rig) - both - idle) / _COUNT - len(body))
        up_cost = (rig.relay.up_bytes - up - idle / 2) / _COUNT - len(body)
    return Figure(
        f"message of {name}: overhead in a burst", costs[0], "B",
        note=f"20 a second: {costs[1]:.0f} B, of it {up_cost:.0f} up;"
        f" burst: {100 * len(body) / (len(body) + costs[0]):.0f}% of the link is body",
    )  # fmt: skip


async def _slow(directory: Path, rates_kbit_s: tuple[float, ...]) -> list[Figure]:
    async with asyncio.TaskGroup() as tasks:
        ways = [
            tasks.create_task(_on_slow(directory / f"slow{kbit_s:.0f}-{nodes}", nodes, kbit_s))
            for kbit_s in rates_kbit_s
            for nodes in (0, NODES)
        ]
    return [figure for way in ways for figure in way.result()]


async def _on_slow(directory: Path, nodes: int, kbit_s: float) -> list[Figure]:
    """Bring a slow link up; after a while, see what is heard and how long a reading takes."""
    name = f"{kbit_s:.0f} kbit/s, {'a node' if nodes else 'shared'}"
    link = partial(ShapedRelay, rate_bytes_s=kbit_s * 125, round_trip_s=_ROUND_TRIP_S)
    async with lane_rig(directory, nodes, link) as rig:
        sent_s: dict[bytes, float] = {}
        took_s: list[float] = []
        loop = asyncio.get_running_loop()

        def take(message: Msg) -> None:
            took_s.append(loop.time() - sent_s[message.data])

        await Tail(rig.hub_client, UP, take).start()
        await rig.relay.heal()
        setup_s = float("inf")
        with contextlib.suppress(TrialError):
            setup_s = await rig.live(_SLOW_S)
        connects = rig.connects
        for number in range(10):
            body = number.to_bytes(25, "big")
            sent_s[body] = loop.time()
            await JetStreamApi(rig.leaf_client).publish("p.node00.voltage.%", body)
            await asyncio.sleep(2.0)
        heard = await rig.heard()
        reading_s = median(took_s) if took_s else float("inf")
        return [
            Figure(
                f"{name}: set up", setup_s, "s",
                note=f"{heard} of {len(rig.lanes) + len(rig.inward)} sources heard,"
                f" {connects} connects",
            ),
            Figure(f"{name}: a reading, median", reading_s, "s", note=f"{len(took_s)} of 10"),
        ]  # fmt: skip


def _carried(rig: LaneRig) -> int:
    return rig.relay.up_bytes + rig.relay.down_bytes
