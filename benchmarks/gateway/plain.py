"""Plain NATS as a site: a leaf's stream that the hub's stream sources, JSON in it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec import Point
from benchmarks.gateway.site import EachSecond, Inbox, Site
from benchmarks.link.plain_link import HUB_STREAM, plain_link
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import connection
from tests.support.stream_content import Tail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from nats.aio.msg import Msg


class Per(Enum):
    """Which readings share a message."""

    POINT = "a point"
    NODE = "a node"
    SECOND = "a second"


class _Message(NamedTuple):
    subject: str
    body: bytes


@asynccontextmanager
async def plain_site(directory: Path, *, per: Per, round_trip_s: float) -> AsyncIterator[Site]:
    """Start both servers; yield the site when a reading has arrived."""
    link_to = partial(ShapedRelay, round_trip_s=round_trip_s)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(plain_link(directory, relay_to=link_to))
        hub = await stack.enter_async_context(connection(link.hub_url))
        leaf = await stack.enter_async_context(connection(link.leaf_url))
        assert isinstance(link.relay, ShapedRelay)
        inbox = Inbox()
        await Tail(hub, HUB_STREAM, partial(_take, inbox)).start()
        jetstream = leaf.jetstream()

        async def send(points: list[Point]) -> None:
            await asyncio.gather(
                *(
                    jetstream.publish(each.subject, each.body, timeout=30)
                    for each in messages(points, per)
                )
            )

        if per is Per.SECOND:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            gathered = EachSecond(send)
            running = tasks.create_task(gathered.run())
            stack.callback(running.cancel)
            send = gathered.send
        site = Site(f"JSON {per.value}", link.relay, send, inbox)
        await site.ready()
        yield site


def messages(points: Iterable[Point], per: Per) -> list[_Message]:
    """Return the messages for readings."""
    if per is Per.POINT:
        return [
            _Message(
                f"p.{point.node}.{point.type}.{point.key or '%'}",
                _json({"time": point.time, "value": point.value}),
            )
            for point in points
        ]
    by_subject: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_subject[f"p.{point.node}" if per is Per.NODE else "p.gateway"].append(point)
    return [_Message(subject, _json(_tree(held, per))) for subject, held in by_subject.items()]


def _tree(points: list[Point], per: Per) -> dict[str, object]:
    """Return stamp to node (unless the subject says it) to type to value."""
    found: dict[str, object] = {}
    for time, held in groupby(
        sorted(points, key=lambda point: point.time), lambda point: point.time
    ):
        nodes: dict[str, dict[str, object]] = defaultdict(dict)
        for point in held:
            nodes[point.node][f"{point.type}/{point.key}" if point.key else point.type] = (
                point.value
            )
        (one, *_) = nodes.values()
        found[str(time)] = one if per is Per.NODE else nodes
    return found


def _take(inbox: Inbox, message: Msg) -> None:
    inbox.take(readings(message.subject, message.data))


def readings(subject: str, body: bytes) -> list[Point]:
    """Return the readings of a message."""
    said, (_, node, *rest) = json.loads(body), subject.split(".")
    if rest:
        key = "" if rest[1] == "%" else rest[1]
        return [Point(node, rest[0], said["time"], said["value"], key=key)]
    found = []
    for time, tree in said.items():
        for name, values in tree.items() if node == "gateway" else [(node, tree)]:
            for type_, value in values.items():
                named, _, key = type_.partition("/")
                found.append(Point(name, named, int(time), value, key=key))
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
