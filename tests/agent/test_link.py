"""The connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import ConnectionClosedError

from backhaul_agent.config import Config, DeviceConfig, NatsConfig
from backhaul_agent.leaf.connection import LeafConnection
from tests.support.raw_publish import publish_raw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.nats_server import NatsServer


class SilentClient:
    """A NATS client that closes without calling its closed callback."""

    doors = None

    def __init__(self) -> None:
        self.is_closed = False

    async def connect(self, **options: Any) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> LeafConnection:
    monkeypatch.setattr("backhaul_agent.leaf.connection.OwnClient", SilentClient)
    monkeypatch.setattr("backhaul_agent.leaf.connection.LOOK_S", 0.001)
    monkeypatch.setattr("backhaul_agent.leaf.connection.RETRY_S_MIN", 0.001)
    return LeafConnection(
        Config(device=DeviceConfig(id="VID-001", token="tok")), lambda error: None
    )


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


@pytest.mark.nats
async def test_no_program_makes_the_agent_deaf_or_speaks_as_the_hub(
    nats_server: NatsServer,
) -> None:
    device = DeviceConfig(id="VID-001", token="tok")
    link = LeafConnection(
        Config(device=device, nats=NatsConfig(url=nats_server.url)), lambda error: None
    )
    found: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def session(client: Any) -> None:
        async def say(at: str) -> None:
            async def said(message: Any) -> None:
                found.put_nowait((at, message.subject))

            await client.subscribe(at, cb=said)

        await say("app.>")
        await say("in.news.>")
        await client.flush()
        await client.flush()  # the first ping may overtake a subscription
        [news] = [number for number, at in client._subs.items() if at.subject == "in.news.>"]
        lines = (b"app.\xff", b"app.a\x0b%d" % news, b"app.last")
        await publish_raw(nats_server.port, *(b"PUB %b 0\r\n\r\n" % line for line in lines))
        await asyncio.Event().wait()

    running = asyncio.create_task(link.run(session))
    try:
        async with asyncio.timeout(120):
            heard = [await found.get() for _ in range(3)]
    finally:
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=1)
    subjects = ("app.\ufffd", "app.a\x0b2", "app.last")
    assert heard == [("app.>", subject) for subject in subjects]
    assert link.connects == 1
