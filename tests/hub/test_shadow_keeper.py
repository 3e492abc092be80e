"""The shadow's bucket on a real server, written and read by a stock key-value client."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import nats
import pytest
from nats.js.errors import KeyWrongLastSequenceError

from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError, RegistryError
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

pytestmark = pytest.mark.nats
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


async def test_a_stock_clients_put_goes_down_field_by_field(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        revision = await rig.desire({"gps.rate": 5, "hmi.theme": "dark", "gps.mode": "eco"})
        meta = await rig.until("meta", taken(revision))
        assert meta["delta"].keys() == {"gps.rate", "hmi.theme", "gps.mode"}
        config = await rig.until("config", lambda config: len(config["fields"]) == 3)
        assert config["fields"] == {"gps.mode": "eco", "gps.rate": 5.0, "hmi.theme": "dark"}
        async with asyncio.timeout(60):
            while await rig.down() != [f"in.{DEVICE}.p.gps", f"in.{DEVICE}.p.hmi.theme.%"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        # With a revision, as two operators do who do not know of each other.
        body = json.dumps({"gps.rate": 6, "hmi.theme": "dark", "gps.mode": "eco"}).encode()
        newer = await rig.kv.update(f"{PREFIX}.desired", body, last=revision)
        with pytest.raises(KeyWrongLastSequenceError):
            await rig.kv.update(f"{PREFIX}.desired", body, last=revision)
        await rig.until("meta", taken(newer))
        head = rig.core.heads.get(DEVICE, RATE)
        assert head is not None
        assert (head.value, head.origin) == (6.0, "hub:shadow")
        # Deleted: nothing is desired any more, and nothing is written for it.
        await rig.kv.delete(f"{PREFIX}.desired")
        meta = await rig.until("meta", lambda meta: not taken(newer)(meta))
        assert meta["delta"] == {}
        assert rig.core.heads.get(DEVICE, RATE) == head


async def test_a_bad_document_is_refused_for_all_to_see(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        good = await rig.desire({"gps.rate": 5})
        await rig.until("meta", taken(good))
        bad = await rig.kv.put(f"{PREFIX}.desired", b'{"gps.rate": 6, "gps.on": true}')
        meta = await rig.until("meta", lambda meta: meta["refused"] is not None)
        assert meta["refused"]["revision"] == bad
        assert "gps.on" in meta["refused"]["reason"]
        assert meta["desired"]["revision"] == good
        assert (await rig.document("config"))["fields"] == {"gps.rate": 5.0}
        await rig.kv.put("fleet.prod.veh.VID-009.desired", b"{}")
        await rig.kv.put("fleet.prod.veh.-odd.desired", b"{}")
        meta = await rig.until("meta", bool, device="VID-009")
        assert "there is no device VID-009" in meta["refused"]["reason"]
        await rig.desire({"gps.rate": 7})
        await rig.until("meta", lambda meta: meta["refused"] is None)
        rig.devices["VID-009"] = Device("VID-009", "cd", "hash", 1)
        rig.keeper.look_again()
        await rig.until("meta", lambda meta: meta["desired"] is not None, device="VID-009")


async def test_what_was_desired_while_nobody_looked_is_taken_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        await rig.until("meta", taken(await rig.desire({"gps.rate": 1})))
        await rig.published()
        await rig.stop()
        written = await rig.down_writes()
        for rate in (2, 3):
            await rig.desire({"gps.rate": rate})
        last = await rig.desire({"gps.rate": 4})
        await rig.start()
        await rig.until("meta", taken(last))
        await rig.until("config", lambda config: config["fields"] == {"gps.rate": 4.0})
        async with asyncio.timeout(60):
            while await rig.down_writes() == written:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await rig.published()
        await rig.stop()
        assert await rig.down_writes() == written + 1, "several writes come to the last"
        await rig.start()
        rig.vehicle.put("hmi", "theme", "dark")
        await rig.hear()
        await rig.until("reported", lambda reported: "hmi.theme" in reported["fields"])
        assert await rig.down_writes() == written + 1, "nothing is written again"


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


async def test_a_crash_at_any_commit_neither_loses_nor_repeats(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        stamps: list[int] = []
        for rate, committed in enumerate([True, False, False, True, True, False], 1):
            write, crashed = rig.registry.write, asyncio.Event()
            crash = partial(_crash, write, committed, crashed)
            rig.registry.write = crash  # type: ignore[method-assign]
            rig.clock.ns += SECOND_NS
            revision = await rig.desire({"gps.rate": rate})
            async with asyncio.timeout(60):
                await crashed.wait()
            await rig.stop()
            rig.registry.write = write  # type: ignore[method-assign]
            crash_ns = rig.clock.ns
            rig.clock.ns += SECOND_NS
            await rig.start()
            await rig.until("meta", taken(revision))
            head = rig.core.heads.get(DEVICE, RATE)
            assert head is not None
            assert head.value == float(rate)
            assert (head.time <= crash_ns) is committed, "written by the first, or by the second"
            stamps.append(head.time)
        assert stamps == sorted(set(stamps))


async def test_documents_are_written_again_where_the_bucket_was_lost(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        await rig.documented()
        await rig.client.jetstream().delete_stream("KV_TWIN_SHADOW")
        rig.vehicle.put("hmi", "theme", "light")
        await rig.hear()
        await rig.declare()
        rig.keeper.lost()
        await rig.until("reported", lambda reported: reported["fields"] == {"hmi.theme": "light"})
        assert await rig.until("desired", bool) == {"gps.rate:int64": 1}
        stamp = rig.core.heads.get(DEVICE, RATE)
        await rig.until("meta", taken(await rig.desire({"gps.rate:int64": 1})))
        assert rig.core.heads.get(DEVICE, RATE) == stamp


async def test_documents_are_written_again_where_the_bucket_is_lost_while_they_are_written_again(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:

        async def is_lost() -> None:
            await rig.lose_bucket()
            rig.keeper.lost()

        await rig.documented()
        really_publish, losses, over = rig.api.publish, [is_lost], asyncio.Event()

        async def publish(subject: str, *rest: Any) -> Any:
            stored = await really_publish(subject, *rest)
            if subject.endswith(".reported") and losses:
                await losses.pop()()
                over.set()
            return stored

        monkeypatch.setattr(rig.api, "publish", publish)
        await is_lost()
        async with asyncio.timeout(60):
            await over.wait()
        assert await rig.until("desired", bool) == {"gps.rate:int64": 1}
        await rig.until("reported", lambda reported: reported["fields"] == {"hmi.theme": "dark"})


async def test_documents_are_written_again_where_the_bucket_was_lost_while_nobody_was_there(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        await rig.documented()
        await rig.stop()
        await rig.lose_bucket()
        await rig.start()
        await rig.until("reported", lambda reported: reported["fields"] == {"hmi.theme": "dark"})
        assert await rig.until("desired", bool) == {"gps.rate:int64": 1}


@pytest.mark.parametrize("part", ["reported", "desired"])
async def test_documents_are_written_again_where_who_wrote_them_again_was_killed_at_it(
    nats_server: NatsServer, tmp_path: Path, part: str
) -> None:
    """The bucket is not empty by then, but has not all of them."""
    async with a_rig(nats_server, tmp_path) as rig:
        await rig.documented()
        await rig.stop()
        gone = {"filter": f"$KV.TWIN_SHADOW.{PREFIX}.{part}"}
        await rig.api.request("STREAM.PURGE.KV_TWIN_SHADOW", gone)
        await rig.start()
        assert await rig.until(part, bool)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "not-answered"])
async def test_a_version_is_of_one_document_alone(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """The bucket has taken it, and the control plane ends before it notes that, or is not told."""
    async with a_rig(nats_server, tmp_path) as rig:
        really_publish, taken_unnoted = rig.api.publish, asyncio.Event()

        async def publish(subject: str, *rest: Any) -> Any:
            stored = await really_publish(subject, *rest)
            if subject.endswith(".reported") and not taken_unnoted.is_set():
                if not killed:
                    await theme("light")
                taken_unnoted.set()
                if killed:
                    await asyncio.Event().wait()
                raise HubError("no answer")
            return stored

        async def theme(name: str) -> None:
            rig.vehicle.put("hmi", "theme", name)
            await rig.hear()

        monkeypatch.setattr(rig.api, "publish", publish)
        await theme("dark")
        async with asyncio.timeout(60):
            await taken_unnoted.wait()
        if killed:
            await rig.stop()
            await rig.start()
            await theme("light")
        last = await rig.until("reported", lambda said: said["fields"] == {"hmi.theme": "light"})
        await rig.until("meta", lambda meta: meta.get("reported", {}).get("time") == last["time"])
        revisions = await rig.kv.history(f"{PREFIX}.reported")
        documents = {each.revision: json.loads(each.value or b"") for each in revisions}
        versions = [document["version"] for document in documents.values()]
        assert len(versions) > 1
        assert versions == sorted(set(versions)), documents


async def test_reported_is_coalesced_and_not_written_for_nothing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number in range(200):
            rig.vehicle.put("hmi", "count", float(number))
            await rig.hear()
            await asyncio.sleep(0)
        reported = await rig.until("reported", lambda said: said["fields"] == {"hmi.count": 199.0})
        rounds = (loop.time() - began_s) / rig.config.twin.shadow_interval_s
        assert reported["version"] <= rounds + 2
        version = reported["version"]
        await rig.until("meta", lambda meta: meta["reported"]["version"] == version)
        await rig.stored()
        before = (await rig.client.jetstream().stream_info("KV_TWIN_SHADOW")).state.last_seq
        await rig.stop()
        await rig.start()
        await rig.until("meta", taken(await rig.desire({})))
        after = (await rig.client.jetstream().stream_info("KV_TWIN_SHADOW")).state.last_seq
        assert after == before + 2, "what is desired, and meta"


async def test_a_full_disk_delays_what_is_desired(nats_server: NatsServer, tmp_path: Path) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        write, failures = rig.registry.write, 0

        async def refuse(changes: Sequence[RowChange]) -> None:
            nonlocal failures
            if failures < 1 and any("INTO head" in change.statement for change in changes):
                failures += 1
                raise RegistryError("hub.db: disk is full") from sqlite3.OperationalError()
            await write(changes)

        rig.registry.write = refuse  # type: ignore[method-assign]
        await rig.until("meta", taken(await rig.desire({"gps.rate": 1})))
        assert failures == 1
        assert rig.keeper.shadows.of(DEVICE).refused is None


async def test_reading_goes_on_after_the_server_was_killed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_rig(nats_server, tmp_path) as rig:
        await rig.until("meta", taken(await rig.desire({"gps.rate": 1})))
        nats_server.kill()
        nats_server.start()
        stock = await patient.connect(nats_server.url)
        kv = await stock.jetstream().key_value("TWIN_SHADOW")
        revision = await kv.put(f"{PREFIX}.desired", b'{"gps.rate": 2}')
        await stock.close()
        await until(lambda: rig.client.is_connected, "connected again")
        await rig.until("meta", taken(revision))
        await rig.until("config", lambda config: config["fields"] == {"gps.rate": 2.0})
