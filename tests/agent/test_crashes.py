"""A real agent and a real leaf server, killed under load: what was acknowledged is there, once.

Modelled: kill -9 of the agent, kill -9 of the leaf, the leaf's store wiped between two runs.
Not covered here: power loss (needs a device that forgets unsynced writes), and the hub.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from tests.agent.crash_load import Load, agent, check, kill_while_it_grows
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import points_of
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

__all__ = ["agent"]  # a fixture

pytestmark = pytest.mark.nats


async def test_kill_of_the_agent_loses_and_doubles_nothing(
    agent: AgentProcess,
    nats_server: NatsServer,
) -> None:
    await agent.ready()
    load = Load(nats_server.url)
    running = asyncio.create_task(load.run())
    await kill_while_it_grows(agent, load, 30, 200, 77, 500)
    load.stopping = True
    await running
    # What was staged under an epoch that nobody vouched for waits until a hub has spoken.
    async with hub_that_knows(nats_server.url):
        await agent.drained()
    await check(nats_server, load)


async def test_kill_of_the_leaf_loses_and_doubles_nothing(
    agent: AgentProcess,
    nats_server: NatsServer,
) -> None:
    await agent.ready()
    load = Load(nats_server.url)
    running = asyncio.create_task(load.run())
    for by in (50, 300, 400):
        await load.grows(by)
        nats_server.kill()
        nats_server.start()
        await agent.ready()
    await load.grows(100)
    load.stopping = True
    await running
    await agent.drained()
    await check(nats_server, load)


async def test_a_wiped_leaf_gets_everything_the_hub_has_not_confirmed(
    agent: AgentProcess,
    nats_server: NatsServer,
) -> None:
    await agent.ready()
    load = Load(nats_server.url)
    running = asyncio.create_task(load.run())
    await load.grows(300)
    nats_server.kill()
    nats_server.wipe()
    nats_server.start()
    await agent.ready()
    await load.grows(100)
    load.stopping = True
    await running
    await agent.drained()
    await check(nats_server, load)


async def test_stopping_in_order_leaves_nothing_in_memory(
    agent: AgentProcess,
    nats_server: NatsServer,
) -> None:
    """Fire-and-forget points, younger than any commit, are in OUT when the process has ended."""
    await agent.ready()
    async with connect(nats_server.url) as client:
        for number in range(200):
            await client.send("late", "n", float(number))
        await client.status()
    assert agent.stop() == 0
    client_ = await patient.connect(nats_server.url)
    try:
        values = [point.value for point in await points_of(client_, "OUT_bulk")]
    finally:
        await client_.close()
    assert values == [float(number) for number in range(200)]


async def test_starts_before_its_server(tmp_path: Path, nats_server: NatsServer) -> None:
    nats_server.stop()
    process = AgentProcess(tmp_path / "agent", nats_server.url)
    process.start()
    try:
        nats_server.start()
        await process.ready()
    finally:
        assert process.stop() == 0
