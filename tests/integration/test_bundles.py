"""Bundles and dictionaries from a program on the vehicle to the hub, and a hub that loses a dictionary."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.history import history
from backhaul_hub.nats.jetstream import JetStreamApi
from tests.integration.readings import arrive

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from backhaul_agent.client import Agent

pytestmark = [pytest.mark.nats]
NODES = [f"cold room {n}" for n in range(8)]


class Fleet:
    """A vehicle that speaks ten times a second, each time of all its nodes; `second` counts."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.second = 0

    async def speak_until(self, field: str, least: int) -> dict[str, Any]:
        """Speak until the ledger's status has a field at this number; return the status."""
        status: dict[str, Any] = {}
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self.second += 1
                for node in NODES:
                    time = self.second * 10**9
                    await self.agent.publish(node, "temperature", self.second / 8, time=time)
                status = await self.agent.status()
                if status["ledger"][field] >= least:
                    return status
                await asyncio.sleep(0.1)


async def forget_dictionary(world: World) -> None:
    """Have the stopped hub hold a dictionary nowhere: not in DICT, nor in its registry, nor in UP where it came."""
    async with world.hub.connection() as client:
        api = JetStreamApi(client)
        await api.request("STREAM.PURGE.DICT")
        await api.request("STREAM.PURGE.UP_00", {"filter": "up.VID-001.d.*"})
    with closing(sqlite3.connect(world.hub.directory / "hub.db")) as db:
        assert db.execute("DELETE FROM dictionary").rowcount == 1
        db.commit()


async def held_again(world: World) -> None:
    """Wait until the hub holds a dictionary again."""
    async with asyncio.timeout(DEADLINE_S):
        with closing(sqlite3.connect(world.hub.directory / "hub.db")) as db:
            while not db.execute("SELECT count(*) FROM dictionary").fetchone()[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_dictionary_that_the_hub_lost_is_asked_for_and_every_reading_arrives_once(
    world: World,
) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        fleet = Fleet(agent)
        await fleet.speak_until("bundles_packed", 2)
        await world.hub.control.stop()
        await forget_dictionary(world)
        await world.hub.start_control()
        packed = (await agent.status())["ledger"]["bundles_packed"]
        await fleet.speak_until("bundles_packed", packed + 1)
        # The hub asks for it, or for the message of UP that brought it: whichever it notices first.
        await held_again(world)
        status = await fleet.speak_until("bundles_packed", packed + 3)
        assert status["ledger"]["dictionaries"] == 1
        await arrive(world, fleet.second, len(NODES))
        report = await world.until(lambda report: lane(report)["gaps"] == [])
        assert lane(report)["lost"] == 0
        pieces = [piece async for piece in history(agent, NODES[3], "temperature")]
        times = [time for piece in pieces for time in piece["times"]]
        assert times == [n * 10**9 for n in range(1, fleet.second + 1)]
