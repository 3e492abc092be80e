"""One control plane at a time, whatever becomes of the server meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.errors import OutboundBufferLimitError

from backhaul_hub.control import single_instance as single
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.errors import HubError


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
