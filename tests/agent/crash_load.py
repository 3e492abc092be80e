"""An agent that is killed under load, and the account of its readings."""

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
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer


Publish = Callable[[Agent], Awaitable[list[float]]]


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
