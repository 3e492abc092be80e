"""A trickle of readings on a vehicle that pushes, and what is known of its lanes at both ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_hub.shards import relay_name
from tests.integration.readings import arrive

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from backhaul_agent.client import Agent
    from tests.support.rig.parts import DeviceRig

BOTH = ["bulk", "live"]
ANSWER_S = 5.0


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(int(DEADLINE_S * 10)):
        if await true():
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{what} never came true")


class Trickle:
    """Readings of one node, five a second, whoever of the vehicle's processes is away; `count` so far."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

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


async def sources(world: World, shard: int = 0) -> list[str]:
    """Return the names of the streams that a shard's relay sources now, sorted; none while it has no leader."""
    asked = f"upapi.STREAM.INFO.{relay_name(shard)}"
    try:
        async with world.hub.connection() as client:
            answer = await client.request(asked, b"", timeout=ANSWER_S)
    except NatsError:
        return []
    return sorted(each["name"] for each in json.loads(answer.data).get("sources") or [])


async def only_pushes(world: World, shard: int = 0) -> None:
    async def there() -> bool:
        return await sources(world, shard) == ["PUSH"]

    await until(there, "no lane is sourced")


async def all_confirmed(world: World, rig: DeviceRig, count: int, device: str = "VID-001") -> None:
    """Check that the readings are at the hub, each once, that nothing is missing, and that the vehicle knows."""
    await arrive(world, count)
    report = await world.until(
        lambda report: lane(report, device)["gaps"] == [] and lane(report, device)["lost"] == 0
    )
    last = lane(report, device)["watermark"]
    async with connect(rig.url) as agent:

        async def there() -> bool:
            return bool((await agent.status())["lanes"]["bulk"]["watermark"] >= last)

        await until(there, "confirmed")
