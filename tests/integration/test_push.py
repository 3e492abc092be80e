"""Lanes that only trickle are pushed: their sources are gone, nothing is lost or doubled, and nothing waits."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from tests.integration.readings import arrive
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from backhaul_agent.client import Agent
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]
BOTH = ["bulk", "live"]


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(int(DEADLINE_S * 10)):
        if await true():
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{what} never came true")


class Trickle:
    """Readings of one node, five a second, whoever of the vehicle's processes is away; `count` so far."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, agent: Agent) -> None:
        while True:
            number = self.count + 1
            await agent.publish("battery", "soc", number / 8, time=number * 10**9)
            self.count = number
            await asyncio.sleep(0.2)

    async def more(self, readings: int) -> None:
        wanted = self.count + readings

        async def there() -> bool:
            return self.count >= wanted

        await until(there, f"{readings} more readings")


@asynccontextmanager
async def trickling(rig: DeviceRig, trickle: Trickle) -> AsyncIterator[Agent]:
    async with connect(rig.url) as agent:
        task = asyncio.create_task(trickle.run(agent))
        try:
            yield agent
        finally:
            if not task.done():
                # No reading may be under way, else nobody knows whether it was kept.
                await trickle.more(1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def pushed(agent: Agent, lanes: list[str]) -> dict[str, Any]:
    """Wait until the vehicle pushes these lanes and no other; return its status."""
    status: dict[str, Any] = {}

    async def there() -> bool:
        status.update(await agent.status())
        return bool(status["link"]["pushed"] == lanes)

    await until(there, f"{lanes} pushed")
    return status


async def sources(world: World) -> list[str]:
    """Return the names of the streams that UP sources now, sorted."""
    async with world.hub.connection() as client:
        answer = await client.request("upapi.STREAM.INFO.UP_00", b"", timeout=DEADLINE_S)
    return sorted(each["name"] for each in json.loads(answer.data).get("sources") or [])


async def only_pushes(world: World) -> None:
    async def there() -> bool:
        return await sources(world) == ["PUSH"]

    await until(there, "no lane is sourced")


async def all_confirmed(world: World, rig: DeviceRig, count: int) -> None:
    """Check that the readings are at the hub, each once, that nothing is missing, and that the vehicle knows."""
    await arrive(world, count)
    report = await world.until(
        lambda report: lane(report)["gaps"] == [] and lane(report)["lost"] == 0
    )
    last = lane(report)["watermark"]
    async with connect(rig.url) as agent:

        async def there() -> bool:
            return bool((await agent.status())["lanes"]["bulk"]["watermark"] >= last)

        await until(there, "confirmed")


async def test_what_trickles_is_pushed_and_after_a_cut_sourced_until_it_is_calm(
    world: World,
) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay, push=True)
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
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port), push=True)
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


@pytest.mark.parametrize("who", ["agent", "leaf", "control plane", "hub server"])
async def test_whoever_is_killed_while_lanes_are_pushed_nothing_is_lost(
    world: World, who: str
) -> None:
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port), push=True)
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
