"""With real servers: the connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.config import Config, DeviceConfig, NatsConfig
from backhaul_agent.leaf.connection import LeafConnection
from backhaul_runtime.patched_client import PatchedClient
from tests.agent.silent_client import link
from tests.support.raw_publish import publish_raw
from tests.support.waiting import until

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


class Abrupt(PatchedClient):
    """Cancels who asks, once an answer was handed over and before he has it."""

    asking: asyncio.Task[Any]

    async def _process_msg(self, *message: Any) -> None:
        await super()._process_msg(*message)
        self.asking.cancel()


@pytest.mark.parametrize("subject", ["$SYS.REQ.USER.INFO", "nobody.there"])
async def test_who_is_cancelled_as_his_answer_comes_is_cancelled_whatever_it_says(
    nats_server: NatsServer, subject: str
) -> None:
    client = Abrupt()
    await client.connect(nats_server.url)
    try:
        client.asking = asyncio.create_task(client.request(subject, b"", timeout=60))
        with pytest.raises(asyncio.CancelledError):
            await client.asking
    finally:
        await client.close()


async def test_nobody_is_told_of_a_connection_whose_session_is_still_ending(
    nats_server: NatsServer,
) -> None:
    device = DeviceConfig(id="VID-001", token="tok")
    config = Config(device=device, nats=NatsConfig(url=nats_server.url))
    link = LeafConnection(config, lambda error: None)
    go_on, ending = asyncio.Event(), asyncio.Event()

    async def session(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await go_on.wait()

    running = asyncio.create_task(link.run(session))
    try:
        await until(lambda: link.client is not None, "connected")
        nats_server.stop()
        async with asyncio.timeout(120):
            await ending.wait()
        assert link.client is None
    finally:
        go_on.set()
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=1)
