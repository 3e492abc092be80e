"""A slow link carries a backlog and what is new, and is not lost over it. No figures here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_codec.subjects import parse_uplink
from tests.support.backlog import publish_frames
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.stream_content import read_stream

from .conftest import lane

if TYPE_CHECKING:
    from .conftest import World

pytestmark = [pytest.mark.nats]
FRAMES = 100


async def test_a_backlog_drains_over_20_kbit_s_and_what_is_new_overtakes_it(world: World) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=2500, round_trip_s=0.6)
    rig, relay = await world.vehicle_behind(link)
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    await relay.cut()
    await world.until(lambda report: not report["devices"][0]["link"]["up"])
    leaf = await world.leaf_client(rig)
    await publish_frames(leaf, FRAMES)
    await relay.heal()
    await world.until(lambda report: lane(report).get("watermark", 0) >= 4, deadline_s=120)
    async with asyncio.timeout(60), connect(rig.url) as agent:
        await agent.publish("door", "open", "yes", lane="live")
    await world.until(lambda report: lane(report).get("watermark", 0) == FRAMES, deadline_s=120)
    found = await read_stream(await world.hub_client(), "UP_00")
    stored = [parse_uplink(subject) for subject, _ in found]
    # A head that is on its way when both ends compare is sent once more.
    new = next(at for at, uplink in enumerate(stored) if uplink.node == "door")
    frames = [at for at, uplink in enumerate(stored) if uplink.letter == "f"]
    assert new < frames[-1]
    # A machine that stands still for seconds has it dialled again for other reasons.
    for server in (rig.leaf, world.hub.server):
        assert b"Stale Connection" not in server.logged(), "the link was taken for dead"
