"""One control plane at a time, whatever becomes of the server meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import OutboundBufferLimitError

from backhaul_hub.control import single_instance as single
from backhaul_hub.control.single_instance import SUBJECT, SingleInstance
from backhaul_hub.errors import HubError
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer


class Connection:
    """A connection to a server that is away, until as much waits for it as the client holds."""

    def __init__(self) -> None:
        self.announced = 0
        self.sole = SingleInstance(self, 2, "younger")  # type: ignore[arg-type]

    async def publish(self, subject: str, body: bytes) -> None:
        self.announced += 1
        if self.announced == 1:
            raise OutboundBufferLimitError
        await self.sole._heard(Message())  # type: ignore[arg-type]


class Message:
    """What an older one says of itself."""

    reply = ""
    data = b'[1, "older"]'

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_one_that_cannot_announce_itself_goes_on_and_ends_where_an_older_one_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(single, "_ANNOUNCE_S", 0.0)
    connection = Connection()
    with pytest.raises(HubError, match="another control plane"):
        async with asyncio.timeout(60):
            await connection.sole.watch()
    assert connection.announced > 1


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Client]:
    client = await patient.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.nats
async def test_none_starts_beside_one_that_is_slow_to_answer(nats_server: NatsServer) -> None:
    """Two at once would each go on from what they know of hub.db."""
    asked = 0

    async def answer_late(message: Msg) -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            await message.respond(b'[1, "older"]')

    async with connected(nats_server) as client:
        await client.subscribe(SUBJECT, cb=answer_late)
        with pytest.raises(HubError, match="another control plane"):
            await SingleInstance(client, 2, "younger").start()


@pytest.mark.nats
async def test_one_starts_where_the_other_is_silent_for_good(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is gone, and the server has not noticed yet."""
    monkeypatch.setattr(single, "_ASK_S", 0.05)

    async def say_nothing(message: Msg) -> None:
        pass

    async with connected(nats_server) as client:
        await client.subscribe(SUBJECT, cb=say_nothing)
        await SingleInstance(client, 2, "younger").start()
