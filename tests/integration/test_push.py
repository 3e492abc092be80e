"""Lanes that only trickle are pushed: their sources are gone, nothing is lost or doubled, and nothing waits."""

from __future__ import annotations

import signal
from random import Random

import pytest

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
from tests.support.rig.relay import Relay

from .conftest import World, lane

pytestmark = [pytest.mark.nats]


async def test_what_trickles_is_pushed_and_after_a_cut_sourced_until_it_is_calm(
    world: World,
) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay)
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        await trickle.more(25)
        report = await world.report()
        status = await agent.status()
        assert status["link"]["pushed"] == BOTH
        assert status["link"]["push_wakes"] == 0
        assert lane(report)["lag_messages"] == 0
        assert lane(report)["watermark"] >= status["lanes"]["bulk"]["watermark"] > 5
        await relay.cut()
        await trickle.more(10)
        await relay.heal()
        await pushed(agent, [])
        await pushed(agent, BOTH)
        await only_pushes(world)
    await all_confirmed(world, rig, trickle.count)
    repeats = lane(await world.report())["repeats"]
    assert repeats < 25, "a link that came back had all that was pushed before come again"


async def test_a_burst_has_the_lane_sourced(world: World) -> None:
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port))
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        for number in range(200):
            text = Random(number).randbytes(4000).hex()
            await agent.publish("camera", "frame", text, time=10**18 + number)
        status = await pushed(agent, ["live"])
        assert status["link"]["push_wakes"] == 1

        async def sourced() -> bool:
            return await sources(world) == ["OUT_bulk", "PUSH"]

        await until(sourced, "bulk is sourced again")
    report = await world.until(lambda report: lane(report)["gaps"] == [])
    assert lane(report)["lost"] == 0


async def test_a_stream_of_pushes_that_an_operator_deletes_is_made_anew(world: World) -> None:
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port))
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        await trickle.more(5)
        hub = await world.hub_client()
        await hub.request("upapi.STREAM.DELETE.PUSH", b"", timeout=30)
        await trickle.more(5)
    await all_confirmed(world, rig, trickle.count)
    log = world.hub.control.logged().decode()
    assert "hears nothing of PUSH" in log


@pytest.mark.parametrize("who", ["agent", "leaf", "control plane", "hub server"])
async def test_whoever_is_killed_while_lanes_are_pushed_nothing_is_lost(
    world: World, who: str
) -> None:
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port))
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        await trickle.more(5)
        if who == "control plane":
            await world.hub.control.stop(signal.SIGKILL)
            await trickle.more(5)
            await world.hub.start_control()
        elif who == "hub server":
            await world.hub.server.stop(signal.SIGKILL)
            await trickle.more(5)
            await world.hub.server.start()
            await world.hub.server.wait_listening(world.hub.client_port)
        if who in ("control plane", "hub server"):
            await trickle.more(5)
            await pushed(agent, BOTH)
            await only_pushes(world)
    if who in ("agent", "leaf"):
        await (rig.agent if who == "agent" else rig.leaf).stop(signal.SIGKILL)
        if who == "agent":
            await rig.start_agent()
        else:
            await rig.leaf.start()
            await rig.leaf.wait_listening(rig.client_port)
            await rig.wait_agent()
        async with trickling(rig, trickle) as agent:
            await trickle.more(5)
            await pushed(agent, BOTH)
            await only_pushes(world)
    await all_confirmed(world, rig, trickle.count)
