"""A connection to the leaf server that says nothing, and the agent's end of it."""

from __future__ import annotations

from typing import Any

import pytest

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.leaf.connection import LeafConnection


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
