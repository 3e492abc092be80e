"""The two ends of a link: what a vehicle was told is kept, and what has arrived at the hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_codec import Point
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import parse_uplink, point_subject
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_runtime.clock import Clock
from benchmarks.load import drive, working
from tests.support.rig.vehicle import DEVICE

if TYPE_CHECKING:
    from backhaul_agent.client import Agent


class Publisher(Protocol):
    """Publishes readings at the vehicle and counts those it was told are kept."""

    kept: int

    async def keep(self, batch: dict[str, list[Point]]) -> None:
        """Publish one sampling pass, node to points, and wait until it is kept."""
        ...


class AgentPublisher:
    """Publishes to our agent."""

    def __init__(self, agent: Agent) -> None:
        self.kept = 0
        self._agent = agent

    async def keep(self, batch: dict[str, list[Point]]) -> None:
        """Publish one sampling pass, a batch for each node."""
        for node, points in batch.items():
            self.kept += await self._agent.publish_batch(node, points)


class PlainPublisher:
    """Publishes each point as one JSON message to a leaf stream."""

    def __init__(self, leaf: Client) -> None:
        self.kept = 0
        self._jetstream = leaf.jetstream()

    async def keep(self, batch: dict[str, list[Point]]) -> None:
        """Publish one sampling pass, all its messages at once."""
        points = [point for points in batch.values() for point in points]
        await asyncio.gather(*(self._publish(point) for point in points))
        self.kept += len(points)

    async def _publish(self, point: Point) -> None:
        subject = point_subject(point.node, point.type, point.key)
        body = json.dumps({"time": point.time, "value": point.value}, separators=(",", ":"))
        await self._jetstream.publish(subject, body.encode(), timeout=10)


class Arrivals:
    """Counts points at the hub, those of a repeated message once."""

    def __init__(self) -> None:
        self.points = 0
        self.first_s: float | None = None
        """When the first reading from before `restored` arrived after it, event loop's clock."""
        self._restored_ns = 0
        self._seen: set[Hashable] = set()
        self._dictionaries = PlainReader()

    def restored(self, now_ns: int) -> None:
        """Watch out for the first arrival of a reading stamped before now."""
        self._restored_ns, self.first_s = now_ns, None

    def ours(self, message: Msg) -> None:
        """Take in a message of UP."""
        uplink = parse_uplink(message.subject)
        body = self._dictionaries.take(uplink, message.data)
        if uplink.letter == FRAME.letter:
            frame, addressed = decode_addressed(uplink, body)
            self._count((frame.epoch, frame.seq), len(addressed), addressed[0].point.time)

    def plain(self, message: Msg) -> None:
        """Take in a message of the plain stream."""
        time_ns = json.loads(message.data)["time"]
        self._count((message.subject, time_ns), 1, time_ns)

    def _count(self, identity: Hashable, points: int, time_ns: int) -> None:
        if identity in self._seen:
            return
        self._seen.add(identity)
        self.points += points
        if self.first_s is None and time_ns < self._restored_ns:
            self.first_s = asyncio.get_running_loop().time()


@asynccontextmanager
async def driving(publisher: Publisher, points_per_s: float, clock: Clock) -> AsyncIterator[None]:
    """Have a simulated vehicle take readings meanwhile; at the end, wait for the last answer."""
    async with working(drive(DEVICE, points_per_s, clock), publisher.keep):
        yield
