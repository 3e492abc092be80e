"""A hub directory whose hub.db is gone, and what streams and servers say of its devices."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.access.keys import read_keys
from backhaul_hub.backup.lost_registry import require_registry
from backhaul_hub.backup.rebuild import Rebuilt, rebuild
from backhaul_hub.backup.traces import traces
from backhaul_hub.config import load
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.enrolment_tokens import user_key
from tests.support.hub_acts import create_device, leave_for_servers, revoke_device
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from backhaul_hub.access.account_names import AccountName
    from backhaul_hub.device import Device

CLOCK = SystemClock()
VID, OTHER, THIRD = "VID-001", "VID-002", "VID-003"
KEY, NEXT = user_key(1).public_key, user_key(2).public_key


class Server(JetStreamApi):
    """A server's streams, as far as they are asked for."""

    def __init__(self) -> None:
        self.durables: list[str] = []
        self.sources: list[Json] = []
        self.messages: dict[str, int] = {}
        self.asked = 0
        """How often it was asked what UP holds."""

    async def stream_info(self, stream: str) -> Json | None:
        return {} if stream == "DOWN_00" else None

    async def info(self, stream: str) -> Json:
        return await self.request(f"STREAM.INFO.{stream}")

    async def request(
        self, verb: str, body: Any = None, *, api: str = "", timeout_s: float | None = None
    ) -> Json:
        if verb == "STREAM.NAMES":
            found = ["UP_00", "RELAY_00"] if api else ["DOWN_00"]
            return {"streams": found, "total": len(found)}
        if verb == "CONSUMER.NAMES.DOWN_00":
            return {"consumers": self.durables, "total": len(self.durables)}
        assert body in (None, {"subjects_filter": "up.>", "offset": 0})
        if verb == "STREAM.INFO.RELAY_00":
            return {"config": {"sources": self.sources}, "state": {}}
        assert verb == "STREAM.INFO.UP_00"
        self.asked += body is not None
        return {"config": {"sources": []}, "state": {"subjects": self.messages}}


class Hub:
    """A hub directory without a server."""

    def __init__(self, directory: Path) -> None:
        create_hub(directory, local_layout(4, 7))
        self.directory = directory
        self.config = load(directory)
        self.keys = read_keys(directory)
        self.server = Server()

    async def add(self, device: str, *nodes: str) -> Device:
        settings = DeviceSettings(nodes=nodes)
        return (await create_device(self.directory, self.config, CLOCK, device, settings)).device

    async def revoke(self, device: str) -> None:
        await revoke_device(self.directory, self.config, CLOCK, device)
        assert await leave_for_servers(self.directory, self.config, CLOCK)

    def lose(self) -> None:
        for path in self.directory.glob("hub.db*"):
            path.unlink()

    async def require(self, shut_out: Mapping[AccountName, set[str]] | None = None) -> None:
        api: Any = self.server
        async with await Registry.open(self.directory / "hub.db") as registry:
            await require_registry(self.directory, self.keys, registry, api, shut_out or {})

    async def rebuild(
        self, held: Mapping[AccountName, int] | None = None, **shut_out: set[str]
    ) -> Rebuilt:
        api: Any = self.server
        found = await traces(self.directory, self.keys, api)
        found.shut_out = shut_out  # type: ignore[assignment]
        async with await Registry.open(self.directory / "hub.db") as registry:
            return await rebuild(registry, found, held or {}, 7, lambda: secrets.token_hex(12))

    async def devices(self) -> dict[str, Device]:
        async with await Registry.open(self.directory / "hub.db") as registry:
            return await read_devices(registry)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "hub")
