"""Lanes that only trickle are pushed: their sources are gone, nothing is lost or doubled, and nothing waits."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from tests.integration.readings import arrive
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from backhaul_agent.client import Agent

pytestmark = [pytest.mark.nats]


class Trickle:
    """Readings of one node, some a second, for as long as the context lasts; `count` so far."""

    def __init__(self, agent: Agent, pause_s: float = 0.2) -> None:
        self.agent = agent
        self.count = 0
        self._pause_s = pause_s

    async def __aenter__(self) -> Trickle:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            number = self.count + 1
            keep = self.agent.publish("battery", "soc", number / 8, time=number * 10**9)
            await asyncio.shield(asyncio.ensure_future(keep))
            self.count = number
            await asyncio.sleep(self._pause_s)


async def pushed(agent: Agent, lanes: list[str]) -> dict[str, Any]:
    """Wait until the vehicle pushes these lanes and no other; return its status."""
    status: dict[str, Any] = {}
    async with asyncio.timeout(DEADLINE_S):
        while (status := await agent.status())["link"]["pushed"] != lanes:
            await asyncio.sleep(0.1)
    return status


async def sources(world: World) -> list[str]:
    """Return the names of the streams that UP sources now, sorted."""
    async with world.hub.connection() as client:
        answer = await client.request("upapi.STREAM.INFO.UP_00", b"", timeout=DEADLINE_S)
    return sorted(each["name"] for each in json.loads(answer.data).get("sources") or [])


async def test_a_lane_that_trickles_is_pushed_and_a_cut_has_it_sourced_again(world: World) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay, push=True)
    async with connect(rig.url) as agent, Trickle(agent) as trickle:
        await pushed(agent, ["bulk", "live"])
        async with asyncio.timeout(DEADLINE_S):
            while await sources(world) != ["PUSH"]:
                await asyncio.sleep(0.1)
        slept = trickle.count
        while trickle.count < slept + 20:
            await asyncio.sleep(0.1)
        status = await agent.status()
        assert status["link"]["pushed"] == ["bulk", "live"]
        assert status["link"]["push_wakes"] == 0
        await relay.cut()
        await asyncio.sleep(2)
        await relay.heal()
        await pushed(agent, [])
        await pushed(agent, ["bulk", "live"])
        last = trickle.count + 1
        while trickle.count < last:
            await asyncio.sleep(0.1)
        await trickle.__aexit__()
        await arrive(world, trickle.count)
