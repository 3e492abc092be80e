"""The part of the control plane that keeps shadows, over a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import nats
import pytest

from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.shadow.service import ShadowKeeper
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.outbox import Publisher
from backhaul_hub.sync.restore import restore
from tests.hub.made_hub import make_hub
from tests.support.hub_sync import DEVICE, FakeClock, Vehicle
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js.kv import KeyValue

    from backhaul_hub.config import HubConfig
    from backhaul_hub.db.change import RowChange
    from tests.support.nats_server import NatsServer
PREFIX = f"fleet.prod.veh.{DEVICE}"
RATE = HeadKey("", "gps", "rate", "")
SECOND_NS = 10**9


class Rig:
    """Server, bucket, hub.db; the control plane's part of it is started and stopped."""

    def __init__(self, config: HubConfig, client: Client, registry: Registry) -> None:
        self.config, self.client, self.registry = config, client, registry
        self.api = JetStreamApi(client)
        self.clock = FakeClock()
        self.vehicle = Vehicle(self.clock)
        self.devices = {DEVICE: Device(DEVICE, "ab", "hash", 1)}
        self.kv: KeyValue
        self._tasks: list[asyncio.Task[None]] = []

    async def declare(self) -> Self:
        for declared in declared_streams(self.config):
            await reconcile(self.api, declared)
        self.kv = await self.client.jetstream().key_value("TWIN_SHADOW")
        return self

    async def start(self) -> None:
        """Start a control plane's shadows, from hub.db."""
        self.core = HubSync(self.clock, FutureRule(5.0), lambda: self.devices, conflicts_max=100)
        await restore(self.core, self.registry)
        self.keeper = ShadowKeeper(
            self.config.twin, self.clock, self.client, self.api, self.core, self.registry,
            lambda: self.devices,
        )  # fmt: skip
        await self.keeper.start()
        publisher = Publisher(
            self.core.outbox, self.core.heads, self.api, self.registry, lambda: self.devices
        )
        self.core.on_stored += [self._tell, publisher.wake]
        self._tasks = [
            asyncio.create_task(work)
            for work in (self.keeper.read_desired(), self.keeper.publish(), publisher.run())
        ]

    async def stop(self) -> None:
        while pending := [task for task in self._tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=1)
        for task in self._tasks:
            assert task.cancelled() or task.exception() is None, task

    def _tell(self) -> None:
        announcements = list(self.core.announcements)
        self.core.announcements.clear()
        news, self.core.news = self.core.news, set()
        self.keeper.tell(announcements, news)

    async def hear(self) -> None:
        """Read what the vehicle has to say."""
        for subject, seq, body in self.vehicle.up:
            uplink = parse_uplink(f"up.{DEVICE}.{subject}")
            key = LaneKey(DEVICE, uplink.lane, 1)
            self.core.on_message(Examined(key, seq, uplink, body), True)
        self.vehicle.up.clear()
        await self.registry.write(self.core.take_changes())
        self.core.stored()

    async def published(self) -> None:
        """Wait until DOWN lacks nothing, and hub.db knows that: a start would publish it again."""
        await until(lambda: self.core.outbox.first() is None, "DOWN lacks nothing")

    async def stored(self) -> None:
        """Wait until hub.db knows of the documents that the bucket has."""
        meta = await self.document("meta")
        async with asyncio.timeout(60):
            while True:
                [row] = await self.registry.fetch("SELECT state FROM shadow")
                if json.loads(row[0])["editions"].get("meta", {}).get("version") == meta["version"]:
                    return
                await asyncio.sleep(0.02)

    async def documented(self) -> None:
        """Have the vehicle report a theme and something desired of it, until hub.db knows of all documents."""
        self.vehicle.put("hmi", "theme", "dark")
        await self.hear()
        await self.until("meta", taken(await self.desire({"gps.rate:int64": 1})))
        await self.stored()

    async def lose_bucket(self) -> None:
        await self.client.jetstream().delete_stream("KV_TWIN_SHADOW")
        await self.declare()

    async def desire(self, document: object) -> int:
        return await self.kv.put(f"{PREFIX}.desired", json.dumps(document).encode())

    async def document(self, part: str, device: str = DEVICE) -> dict[str, Any]:
        entry = await self.kv.get(f"fleet.prod.veh.{device}.{part}")
        found: dict[str, Any] = json.loads(entry.value or b"")
        return found

    async def until(
        self, part: str, condition: Callable[[dict[str, Any]], bool], *, device: str = DEVICE
    ) -> dict[str, Any]:
        """Wait until a document is as it should be."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(60):
                while True:
                    try:
                        found = await self.document(part, device)
                    except nats.js.errors.KeyNotFoundError:
                        found = {}
                    if found and condition(found):
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"never came true: {found}")

    async def down(self) -> list[str]:
        info = await self.client.jetstream().stream_info("DOWN_00", subjects_filter="in.>")
        return sorted(info.state.subjects or {})

    async def down_writes(self) -> int:
        """Count what was ever published into DOWN."""
        return (await self.client.jetstream().stream_info("DOWN_00")).state.last_seq


@asynccontextmanager
async def a_rig(server: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    config = make_hub(tmp_path / "hub", free=8 << 30)
    client = await patient.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    async with await Registry.open(tmp_path / "hub" / "hub.db") as registry:
        try:
            rig = await Rig(config, client, registry).declare()
            await rig.start()
            try:
                yield rig
            finally:
                await rig.stop()
        finally:
            await client.close()


def taken(revision: int) -> Callable[[dict[str, Any]], bool]:
    return lambda meta: meta["desired"] is not None and meta["desired"]["revision"] == revision


async def _crash(
    write: Any, committed: bool, crashed: asyncio.Event, changes: Sequence[RowChange]
) -> None:
    """Stand for a write to hub.db after, or before, which the control plane is killed."""
    dies = any("INTO head" in change.statement for change in changes)
    if committed or not dies:
        await write(changes)
    if dies:
        crashed.set()
        await asyncio.Event().wait()
