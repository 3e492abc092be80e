"""With real servers: the connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.config import Config, DeviceConfig, NatsConfig
from backhaul_agent.leaf.connection import LeafConnection
from tests.agent.silent_client import link
from tests.support.raw_publish import publish_raw

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

__all__ = ["link"]  # a fixture

pytestmark = pytest.mark.nats


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
