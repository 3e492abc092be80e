"""Readings that are kept, and looked for at the hub."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import NotFoundError

from backhaul_codec import Point, decode
from backhaul_codec.kinds import DICTIONARY
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub.shards import up_name

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from backhaul_agent.client import Agent
    from tests.support.rig.parts import DeviceRig


GARBAGE = b"garbage"


def points(first: int, count: int) -> list[Point]:
    return [
        Point("battery", "soc", number * 10**9, number / 8)
        for number in range(first, first + count)
    ]


async def told(hub: JetStreamContext, subject: str) -> int:
    """Return the watermark that a vehicle is told, once it is: the hub itself knows it before."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                found = await hub.get_last_msg("DOWN_00", subject)
            except NotFoundError:
                await asyncio.sleep(0.05)
            else:
                return int(json.loads(found.data or b"{}")["seq"])


async def keep(agent: Agent, first: int, count: int) -> None:
    """Have points `first`.. kept, in batches that are frames of their own."""
    for start in range(first, first + count, 250):
        await agent.publish_batch("battery", points(start, min(250, first + count - start)))


async def frames_at_the_hub(world: World) -> list[tuple[tuple[str, str, int, int], list[int]]]:
    """Read UP from outside: the identity of each frame and bundle, and the times of its points in seconds."""
    client = await world.hub_client()
    jetstream = client.jetstream(prefix="upapi")
    messages = []
    dictionaries = PlainReader()
    for shard in range(world.shards):
        stream = up_name(shard)
        last = (await jetstream.stream_info(stream)).state.last_seq
        for seq in range(1, last + 1):
            try:
                message = await jetstream.get_msg(stream, seq, direct=True)
            except NotFoundError:
                continue  # a test took it out
            assert message.subject is not None
            assert message.data is not None
            uplink = parse_uplink(message.subject)
            if uplink.kind is DICTIONARY:
                dictionaries.take(uplink, message.data)
            elif uplink.letter == "f" and message.data != GARBAGE:
                messages.append((uplink, message.data))
    found = []
    for uplink, body in messages:
        frame = decode(dictionaries.take(uplink, body), node=uplink.node)
        times = [point.time // 10**9 for point in frame.points]
        found.append(((uplink.device, uplink.lane, frame.epoch, frame.seq), times))
    return found


async def at_the_hub(world: World) -> list[int]:
    """Return the times of all points in UP, in seconds, each message counted once."""
    seen = dict(await frames_at_the_hub(world))
    return sorted(time for times in seen.values() for time in times)


async def arrive(world: World, count: int, nodes: int = 1) -> None:
    """Wait until points 1 to `count` of so many nodes are at the hub, each once, under whatever epoch."""
    wanted = sorted(nodes * [*range(1, count + 1)])
    found: list[int] = []
    for _ in range(1800):
        found = await at_the_hub(world)
        if found == wanted:
            return
        await asyncio.sleep(0.1)
    missing = sorted(set(wanted) - set(found))
    pytest.fail(f"{len(found)} at the hub, missing {missing[:20]} of {len(missing)}")


async def confirmed(world: World, rig: DeviceRig, seq: int) -> None:
    """Wait until the agent has heard that the hub holds everything up to `seq`."""
    local = await world.leaf_client(rig)
    status: dict[str, Any] = {}
    for _ in range(3000):
        status = json.loads((await local.request("agent.status", b"")).data)
        if status["lanes"]["bulk"]["watermark"] == seq:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"the agent never heard that the hub holds seq {seq}: {status['lanes']}")
