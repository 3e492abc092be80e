"""The connection to the leaf server, where nats-py does not tell all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.link import Link

if TYPE_CHECKING:
    import pytest


class SilentClient:
    """A NATS client that closes without calling its closed callback."""

    def __init__(self) -> None:
        self.is_closed = False

    async def connect(self, **options: Any) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


async def test_a_closed_connection_is_noticed_without_its_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nats-py now and then closes without saying so; an agent that waits for it stays deaf."""
    made: list[SilentClient] = []

    def make() -> SilentClient:
        made.append(SilentClient())
        return made[-1]

    monkeypatch.setattr("backhaul_agent.link.Client", make)
    monkeypatch.setattr("backhaul_agent.link.LOOK_S", 0.001)
    link = Link(Config(device=DeviceConfig(id="VID-001", token="tok")), lambda error: None)
    sessions = 0
    enough = asyncio.Event()

    async def session(client: Any) -> None:
        nonlocal sessions
        sessions += 1
        if sessions == 2:
            enough.set()
        client.is_closed = True
        await asyncio.Event().wait()

    running = asyncio.create_task(link.run(session))
    async with asyncio.timeout(5):
        await enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(made) >= 2
