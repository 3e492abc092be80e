"""backhaul as a site: hub, control plane, leaf and agent, all of it real."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.client import connect
from backhaul_codec.kinds import DICTIONARY, REPORT, RESULT, SYSTEM
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub.lane_names import out_stream
from benchmarks.gateway.options import CHOSEN
from benchmarks.gateway.site import ARRIVE_S, DEVICE, Inbox, Site
from tests.support.link_kinds import LinkKinds
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import vehicle
from tests.support.stream_content import Tail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.client import Agent
    from backhaul_codec import Point

UP = "UP_00"
_COMMAND = "probe"
_NO_READINGS = (SYSTEM, REPORT, RESULT, DICTIONARY)


class StoredMessage(NamedTuple):
    """A message of UP that has readings."""

    seq: int
    subject: str
    body: bytes


class OurInbox(Inbox):
    """Takes in messages of UP, and keeps those that have readings."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[StoredMessage] = []
        self.at_s: dict[bytes, float] = {}
        self._dictionaries = PlainReader()

    def on_message(self, message: Msg) -> None:
        """Take in a message of UP."""
        place = parse_uplink(message.subject)
        body = self._dictionaries.take(place, message.data)
        if place.kind in _NO_READINGS:
            return
        header, addressed = decode_addressed(place, body)
        self.messages.append(
            StoredMessage(message.metadata.sequence.stream, message.subject, message.data)
        )
        self.at_s[message.data] = asyncio.get_running_loop().time()
        self.take([each.point for each in addressed], (place.lane, header.epoch, header.seq))


@asynccontextmanager
async def our_site(
    directory: Path, *, round_trip_s: float, settings: str = "", watched: bool = False
) -> AsyncIterator[Site]:
    """Start hub and vehicle; yield the site when a reading has arrived.

    Args:
        directory: where both keep their files; exists.
        round_trip_s: the link's.
        settings: TOML tables to add to agent.toml.
        watched: whether to see when the leaf stores messages, which `reading` needs.
    """
    kinds = LinkKinds()

    def relay_to(host: str, port: int) -> ShapedRelay:
        relay = ShapedRelay(host, port, round_trip_s=round_trip_s)
        relay.watch = lambda: kinds.connection().take
        return relay

    async with (
        vehicle(
            directory,
            relay_to=relay_to,
            agent_settings=settings,
            push=CHOSEN.get().push,
        ) as rig,
        rig.hub.connection() as hub,
        rig.device.connection() as leaf,
        connect(rig.device.url) as agent,
    ):
        assert isinstance(rig.relay, ShapedRelay)
        inbox = OurInbox()
        await Tail(hub, UP, inbox.on_message).start()
        commands = _Commands(hub)
        await agent.on_command(_COMMAND, commands.carry_out)
        site = Site(
            "backhaul",
            rig.relay,
            partial(_send, agent),
            inbox,
            command=commands.send,
            stored=partial(_stored, hub),
            kinds=kinds,
        )
        if watched:
            site.reading = (await _Watch.start(leaf, agent, inbox)).reading
        await site.ready()
        yield site


async def _send(agent: Agent, points: list[Point]) -> None:
    """Have the agent keep readings, those of each node as a batch, all nodes at once."""
    by_node = groupby(sorted(points, key=_node), key=_node)
    async with asyncio.TaskGroup() as tasks:
        for node, batch in by_node:
            tasks.create_task(agent.publish_batch(node, list(batch)))


def _node(point: Point) -> str:
    return point.node


async def _stored(hub: Client) -> tuple[int, int]:
    answer = await hub.request(f"upapi.STREAM.INFO.{UP}", b"", timeout=30)
    state = json.loads(answer.data)["state"]
    return state["bytes"], state["messages"]


class _Commands:
    """Sends commands from the hub and notes when the vehicle's program is asked."""

    def __init__(self, hub: Client) -> None:
        self._jetstream = hub.jetstream()
        self._asked: asyncio.Future[float] | None = None

    async def carry_out(self, _command: dict[str, object]) -> str:
        """Note that the program is asked."""
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(asyncio.get_running_loop().time())
        return "done"

    async def send(self) -> float:
        """Send a command; return after how many seconds the program was asked."""
        loop = asyncio.get_running_loop()
        self._asked, began_s = loop.create_future(), loop.time()
        await self._jetstream.publish(
            f"fleet.prod.veh.{DEVICE}.cmd.{_COMMAND}", b'{"deadline_s": 60}'
        )
        return await self._asked - began_s


class _Watch:
    """Sees when the leaf's stream has a message: then the agent has flushed it."""

    def __init__(self, agent: Agent, inbox: OurInbox) -> None:
        self._agent = agent
        self._inbox = inbox
        self._flushed_s: dict[bytes, float] = {}

    @classmethod
    async def start(cls, leaf: Client, agent: Agent, inbox: OurInbox) -> _Watch:
        """Begin to watch."""
        found = cls(agent, inbox)
        await Tail(leaf, out_stream("bulk"), found._stored).start()
        return found

    def _stored(self, message: Msg) -> None:
        self._flushed_s[message.data] = asyncio.get_running_loop().time()

    async def reading(self, point: Point) -> float:
        """Publish a reading; return how many seconds after its flush it was at the hub."""
        count = len(self._inbox.messages)
        await self._agent.publish_batch(point.node, [point])
        await self._inbox.until(
            lambda: self._inbox.account.is_there(point), ARRIVE_S, "a reading after silence"
        )
        body = next(
            each.body for each in self._inbox.messages[count:] if each.body in self._flushed_s
        )
        return self._inbox.at_s[body] - self._flushed_s[body]
