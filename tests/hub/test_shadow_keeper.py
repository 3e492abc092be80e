"""The shadow's bucket on a real server, written and read by a stock key-value client."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import KeyWrongLastSequenceError

from backhaul_hub.device import Device
from backhaul_hub.errors import HubError, RegistryError
from tests.hub.shadow_rig import PREFIX, RATE, SECOND_NS, _crash, a_rig, taken
from tests.support.hub_sync import DEVICE
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backhaul_hub.db.change import RowChange
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


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
