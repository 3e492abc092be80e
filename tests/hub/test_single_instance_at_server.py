"""With real servers: one control plane at a time, whatever becomes of the server meanwhile."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.control import single_instance as single
from backhaul_hub.control.single_instance import SUBJECT, SingleInstance
from backhaul_hub.errors import HubError
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Client]:
    client = await patient.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


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
