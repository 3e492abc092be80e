"""The past of a series as people ask for it: a real vehicle, the real server of history, tables that ingest's code writes."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_codec import Point
from backhaul_spark.nats.direct_get import close_connections
from tests.support.past_world import PastWorld
from tests.support.rig.parts import Part, program

from .examples import DEADLINE_S
from .people_line import Line

if TYPE_CHECKING:
    from .conftest import World

pytestmark = [pytest.mark.nats]

DEVICE = "VID-001"


async def values(at: Line, count: int) -> list[float]:
    """Ask until so many readings are there, as the hub has them a moment after the vehicle; return them."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await at.json("anna", "history", DEVICE, "gps.speed", "--points", "1000")
            if len(answer["t_us"]) >= count:
                return [float(value) for value in answer["min"]]
            await asyncio.sleep(0.1)


async def test_people_see_the_past_each_reading_once_and_of_their_own_group_alone(
    world: World,
) -> None:
    at = Line(world)
    for group in ("plant-7", "depot"):
        await at.operator("node", "create", group)
    rig, _ = await world.vehicle(DEVICE)
    await at.operator("node", "move", DEVICE, "--to", "plant-7")
    await at.add("anna", "plant-7", "read")
    await at.add("dora", "depot", "command")
    refusal = await at.refused("anna", "history", DEVICE, "gps.speed")
    assert "nobody serves history" in refusal
    assert "backhaul-spark serve-history" in refusal

    options = {
        "servers": world.hub.addresses()[0],
        "credentials": str(world.hub.directory / "creds" / "spark.creds"),
    }
    past = PastWorld(world.directory, options, None)
    command = [
        *(program("backhaul-spark"), "serve-history", "--hub-dir", str(world.hub.directory)),
        *("--table-root", str(past.root), "--checkpoint", str(past.checkpoint)),
    ]
    server = Part("history", command, world.directory / "history.log")
    await server.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while b"answering" not in server.logged():
                server.assert_alive()
                await asyncio.sleep(0.05)
        start_ns = time.time_ns() - 60 * 10**9

        async def publish(numbers: range) -> None:
            points = [
                Point("gps", "speed", start_ns + number * 10**9, float(number))
                for number in numbers
            ]
            async with connect(rig.url) as agent:
                await agent.publish_batch("gps", points)

        await publish(range(10))
        assert await values(at, 10) == list(range(10)), "from UP: there are no tables yet"
        await asyncio.to_thread(past.ingest)
        assert await values(at, 10) == list(range(10)), "from points"
        await publish(range(10, 20))
        assert await values(at, 20) == list(range(20)), "from both"
        await asyncio.to_thread(past.ingest)
        await asyncio.to_thread(past.rollup)
        assert await values(at, 20) == list(range(20))
        assert " to 19 " in await at.person("anna", "history", DEVICE, "gps.speed")
        own = json.loads(await at.operator("history", DEVICE, "gps.speed", "--json"))
        assert (own["level"], sum(own["n"])) == ("minute", 20)
        none = await at.json("anna", "history", DEVICE, "gps.height")
        assert (none["t_us"], none["runs"], none["kind"]) == ([], [], "number")
        assert "dora may command below depot only" in await at.refused(
            "dora", "history", DEVICE, "gps.speed"
        )
    finally:
        await server.stop()
        close_connections()
