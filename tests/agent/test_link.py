"""The connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nats.errors import ConnectionClosedError

from tests.agent.silent_client import link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from backhaul_agent.leaf.connection import LeafConnection

__all__ = ["link"]  # a fixture


async def served(
    link: LeafConnection, session: Callable[[Any], Awaitable[None]], times: int
) -> None:
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


async def test_a_closed_connection_is_noticed_without_its_callback(link: LeafConnection) -> None:
    """nats-py now and then closes without saying so; an agent that waits for it stays deaf."""

    async def session(client: Any) -> None:
        client.is_closed = True
        await asyncio.Event().wait()

    await served(link, session, times=3)


async def test_a_session_that_fails_while_it_ends_is_followed_by_another(
    link: LeafConnection,
) -> None:
    """Before Python 3.13 a TaskGroup that fails at its end leaves its task marked as cancelled."""

    async def session(client: Any) -> None:
        client.is_closed = True
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionClosedError

    await served(link, session, times=3)
