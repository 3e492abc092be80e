"""Pushed lanes over links that lose bytes without a word, and over one of 20 kbit/s. No figures here."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from backhaul_agent.client import connect
from backhaul_agent.config_file import load
from backhaul_agent.leaf.connection import requester
from backhaul_agent.leaf.half_open import HalfOpen
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.leaf.link_watch import LinkWatch
from backhaul_codec.subjects import parse_uplink
from tests.integration.readings import arrive, at_the_hub
from tests.integration.trickles import (
    BOTH,
    Trickle,
    all_confirmed,
    only_pushes,
    pushed,
    sources,
    trickling,
    until,
)
from tests.support.backlog import publish_frames
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.stream_content import read_stream

from .conftest import World, lane

pytestmark = [pytest.mark.nats]
FRAMES = 40


async def test_a_link_that_swallows_one_direction_loses_and_doubles_nothing(world: World) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port)
    rig, relay = await world.vehicle_behind(link, ping_s=1)
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        for up in (True, False):
            await pushed(agent, BOTH)
            await only_pushes(world)
            before = relay.accepted
            relay.swallow(up=up, down=not up)
            await trickle.more(5)
            await until(partial(dialled, relay, before), "the leaf has dialled again")
            known = trickle.count
            await until(partial(arrived, world, known), "what was pushed into the dead link")
    await all_confirmed(world, rig, trickle.count)
    assert lane(await world.report())["repeats"] < trickle.count


async def test_over_20_kbit_s_a_burst_is_sourced_and_what_is_live_overtakes_it(
    world: World,
) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(link)
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        link.rate_bytes_s, link.round_trip_s = 2500, 0.6
        await agent.publish("door", "open", "no", lane="live")
        await until(partial(live_arrived, world, 1), "an event")
        await publish_frames(await world.leaf_client(rig), FRAMES)
        await pushed(agent, ["live"])
        await until(partial(bulk_sourced, world), "bulk is sourced again")
        await agent.publish("door", "open", "yes", lane="live")
    async with connect(rig.url) as agent:
        status = await agent.status()
        last = status["lanes"]["bulk"]["last_seq"]
    report = await world.until(lambda report: lane(report).get("watermark", 0) >= last)
    assert lane(report)["gaps"] == []
    assert lane(report)["lost"] == 0
    stored = [
        parse_uplink(subject) for subject, _ in await read_stream(await world.hub_client(), "UP_00")
    ]
    doors = [at for at, uplink in enumerate(stored) if uplink.node == "door"]
    frames = [at for at, uplink in enumerate(stored) if uplink.letter == "f"]
    assert len(doors) >= 2
    assert doors[1] < frames[-1]


async def test_where_something_is_to_be_said_a_half_open_link_is_dialled_anew_before_any_ping(
    world: World,
) -> None:
    """With fewer looks than an agent takes, by a watch beside it, which asks the hub as an agent does."""
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port)
    rig, relay = await world.vehicle_behind(link, ping_s=600)
    client = await world.leaf_client(rig)
    asked = 0

    async def ask() -> None:
        await client.publish("clk.VID-001", b'{"t1": 1}')

    def asks() -> None:
        nonlocal asked
        asked += 1
        questions.create_task(ask())

    uplink = UplinkState()
    watch = LinkWatch(load(rig.agent_toml), uplink, asks, HalfOpen(ask_looks=1, cut_looks=4))
    trickle = Trickle()
    async with trickling(rig, trickle) as agent, asyncio.TaskGroup() as questions:
        await agent.publish("door", "open", "no", lane="live")
        looking = questions.create_task(uplink.run(requester(client)))
        cutting = questions.create_task(watch.run())

        async def was_asked() -> bool:
            return asked > 0

        await until(was_asked, "the hub is asked while it says little")
        before = relay.accepted
        relay.swallow(up=True, down=True)
        await trickle.more(5)
        await until(partial(dialled, relay, before), "the leaf has dialled again")
        await until(partial(arrived, world, trickle.count), "what was pushed into the dead link")
        looking.cancel()
        cutting.cancel()
    assert watch.status()["half_open"] >= 1
    await arrive(world, trickle.count)


async def bulk_sourced(world: World) -> bool:
    return await sources(world) == ["OUT_bulk", "PUSH"]


async def dialled(relay: ShapedRelay, before: int) -> bool:
    return relay.accepted > before


async def arrived(world: World, reading: int) -> bool:
    return reading in await at_the_hub(world)


async def live_arrived(world: World, events: int) -> bool:
    found = await read_stream(await world.hub_client(), "UP_00")
    return sum(parse_uplink(subject).node == "door" for subject, _ in found) >= events
