"""The end of the connection to the leaf server, where nats-py forgets that it was told to end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from backhaul_agent.apps.doors import OwnClient
from backhaul_agent.config import Config, DeviceConfig, NatsConfig
from backhaul_agent.leaf import connection
from backhaul_agent.leaf.connection import LeafConnection
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest


async def nothing(client: Any) -> None:
    """Do nothing on a connection."""


async def test_an_agent_that_ends_as_its_server_goes_away_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 220 agents that were ended together with their servers 27 dialled on for ever."""
    attempts = 0

    async def connect(self: OwnClient, **login: Any) -> None:
        nonlocal attempts
        attempts += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionRefusedError("refused") from None

    monkeypatch.setattr(OwnClient, "connect", connect)
    monkeypatch.setattr(connection, "_close", nothing)
    config = Config(device=DeviceConfig(id="VID-001", token="tok"), nats=NatsConfig())
    running = asyncio.create_task(LeafConnection(config, lambda error: None).run(nothing))
    await until(lambda: attempts)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=30)
    try:
        assert done == {running}
        assert running.cancelled()
    finally:
        while not running.done():
            running.cancel()
            await asyncio.sleep(0)
