"""A real agent and a real leaf server, killed under load: what was acknowledged is there, once.

Modelled: kill -9 of the agent, kill -9 of the leaf, the leaf's store wiped between two runs.
Not covered here: power loss (needs a device that forgets unsynced writes), and the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import Agent, connect
from backhaul_agent.errors import AgentError
from backhaul_codec import Point
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import assert_no_holes, points_of, read_stream
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer

Publish = Callable[[Agent], Awaitable[list[float]]]
pytestmark = pytest.mark.nats
QUICK = "[frame]\nage_s_max = 0.1\npoints_max = 50"


@pytest.fixture
def agent(tmp_path: Path, nats_server: NatsServer) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path / "agent", nats_server.url, extra=QUICK)
    process.start()
    try:
        yield process
    finally:
        process.stop()


class Load:
    """Publishes numbered points three ways until stopped; remembers which were acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: set[float] = set()
        self.tried: set[float] = set()
        self.stopping = False
        self._url = url
        self._next = 0
        self._grew = asyncio.Event()

    def numbers(self, count: int) -> list[float]:
        first, self._next = self._next, self._next + count
        numbers = [float(number) for number in range(first, first + count)]
        self.tried.update(numbers)
        return numbers

    async def run(self) -> None:
        async with connect(self._url) as agent, asyncio.TaskGroup() as group:
            client = Agent(agent.nats, 5.0, agent.clock)
            for publish in (self.single, self.live, self.small_batch, self.large_batch):
                group.create_task(self.repeat(client, publish))

    async def grows(self, count: int) -> None:
        """Wait until so many more points are acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(120):
            while len(self.acknowledged) < goal:
                self._grew.clear()
                await self._grew.wait()

    async def repeat(self, client: Agent, publish: Publish) -> None:
        while not self.stopping:
            try:
                self.acknowledged.update(await publish(client))
                self._grew.set()
            except AgentError:
                await asyncio.sleep(0.05)  # the agent or the leaf is away

    async def single(self, client: Agent) -> list[float]:
        numbers = self.numbers(1)
        await client.publish("single", "n", numbers[0])
        return numbers

    async def live(self, client: Agent) -> list[float]:
        numbers = self.numbers(1)
        await client.publish("live", "n", numbers[0], lane="live")
        return numbers

    async def small_batch(self, client: Agent) -> list[float]:
        numbers = self.numbers(7)
        await client.publish_batch("small", [point("small", n) for n in numbers])
        return numbers

    async def large_batch(self, client: Agent) -> list[float]:
        numbers = self.numbers(40)
        await client.publish_batch("large", [point("large", n) for n in numbers])
        return numbers


def point(node: str, number: float) -> Point:
    return Point(node=node, type="n", time=int(number) * 1_000_000, value=number)


async def check(
    server: NatsServer, load: Load, streams: tuple[str, ...] = ("OUT_live", "OUT_bulk")
) -> None:
    """Every acknowledged point is in OUT exactly once; nothing is there that nobody sent."""
    client = await patient.connect(server.url)
    try:
        for stream in streams:
            assert_no_holes(await read_stream(client, stream))
        found = [
            point.value
            for stream in streams
            for point in await points_of(client, stream)
            if point.node  # the agent's own events aside
        ]
    finally:
        await client.close()
    assert len(found) == len(set(found)), "a point is there twice"
    assert load.acknowledged <= set(found), "an acknowledged point is missing"
    assert set(found) <= load.tried
    assert len(load.acknowledged) > 100


async def kill_while_it_grows(agent: AgentProcess, load: Load, *counts: int) -> None:
    """Kill the agent and start it again, each time after so many more points."""
    for count in counts:
        await load.grows(count)
        agent.kill()
        agent.start()
        await agent.ready()


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
