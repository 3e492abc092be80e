"""The connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import ConnectionClosedError

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.link import Link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class SilentClient:
    """A NATS client that closes without calling its closed callback."""

    def __init__(self) -> None:
        self.is_closed = False

    async def connect(self, **options: Any) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    monkeypatch.setattr("backhaul_agent.link.Client", SilentClient)
    monkeypatch.setattr("backhaul_agent.link.LOOK_S", 0.001)
    monkeypatch.setattr("backhaul_agent.link.RETRY_S_MIN", 0.001)
    return Link(Config(device=DeviceConfig(id="VID-001", token="tok")), lambda error: None)


async def served(link: Link, session: Callable[[Any], Awaitable[None]], times: int) -> None:
    """Run a link until so many sessions have begun."""
    begun = asyncio.Semaphore(0)

    async def counted(client: Any) -> None:
        begun.release()
        await session(client)

    running = asyncio.create_task(link.run(counted))
    async with asyncio.timeout(60):
        for _ in range(times):
            await begun.acquire()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_closed_connection_is_noticed_without_its_callback(link: Link) -> None:
    """nats-py now and then closes without saying so; an agent that waits for it stays deaf."""

    async def session(client: Any) -> None:
        client.is_closed = True
        await asyncio.Event().wait()

    await served(link, session, times=3)


async def test_a_session_that_fails_while_it_ends_is_followed_by_another(link: Link) -> None:
    """Before Python 3.13 a TaskGroup that fails at its end leaves its task marked as cancelled."""

    async def session(client: Any) -> None:
        client.is_closed = True
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionClosedError

    await served(link, session, times=3)
