"""Backups of a real server's streams: taken while writes go on, cut short, damaged, put back."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.subjects import stored_dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary
from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.backup.backup import Backup
from backhaul_hub.backup.manifest import (
    MANIFEST,
    PARTIAL,
    load_manifest,
    store_manifest,
)
from backhaul_hub.backup.restore import Restore, whole_backup
from backhaul_hub.backup.selection import Choice
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_position
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.snapshots import Snapshot, copy
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.dictionary_bounds import DictionaryKey
from backhaul_hub.uplink.stream_digest import (
    Block,
)
from tests.hub.backups import FixedClock, content, streams_at, write
from tests.hub.made_hub import make_hub
from tests.support.nats_server import NatsServer
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig


@pytest.fixture
async def hub(tmp_path: Path, nats_server: NatsServer, client: Client) -> HubConfig:
    """A hub's streams and hub.db, without vehicles."""
    return await hub_at(client, tmp_path / "hub", nats_server.port)


async def hub_at(client: Client, directory: Path, port: int) -> HubConfig:
    """Make a hub, its streams and hub.db, without vehicles."""
    make_hub(directory, port=port, free=40 << 30)
    return await streams_at(client, directory)


def backup(
    client: Client, config: HubConfig, tmp_path: Path, name: str = "backup", **choice: object
) -> Backup:
    return Backup(
        client,
        config,
        FixedClock(),
        tmp_path / "hub",
        tmp_path / name,
        Choice(**choice),  # type: ignore[arg-type]
    )


async def dictionaries(client: Client, tmp_path: Path) -> dict[str, bytes]:
    """Have hub.db and DICT hold two dictionaries; return their bodies by their subjects."""
    names = {digest_of(body): body for body in (b"names", b"others")}
    async with await Registry.open(tmp_path / "hub" / "hub.db") as registry:
        kept = Dictionaries(JetStreamApi(client), registry, FixedClock())
        await kept.keep({DictionaryKey("VID-001", each): names[each] for each in names})
    return {stored_dictionary_subject("VID-001", each): names[each] for each in names}


async def wipe(client: Client, tmp_path: Path) -> None:
    api = JetStreamApi(client)
    for name in (await api.request("STREAM.NAMES"))["streams"]:
        await api.request(f"STREAM.DELETE.{name}")
    for path in (tmp_path / "hub").glob("hub.db*"):
        path.unlink()


def restore(client: Client, config: HubConfig, tmp_path: Path, name: str = "backup") -> Restore:
    source = tmp_path / name
    return Restore(client, config, FixedClock(), source, whole_backup(source), tmp_path / "hub")


@pytest.mark.nats
async def test_a_backup_taken_while_writes_go_on_comes_back_as_it_was(
    hub: HubConfig, client: Client, nats_server: NatsServer, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 10_000)
    await write(client, "quarantine.UP_00.1.1", 3)
    names = await dictionaries(client, tmp_path)
    store = await client.jetstream().key_value("TWIN_SHADOW")
    for rate in range(7):
        await store.put("fleet.prod.veh.VID-001.desired", json.dumps({"rate": rate}).encode())
    data = os.urandom(700_000)
    await Objects(client).put("map", io.BytesIO(data))

    other = await patient.connect(nats_server.url)
    going = asyncio.Event()

    async def go_on() -> None:
        while not going.is_set():
            await write(other, "up.VID-001.f.battery", 5)
            await asyncio.sleep(0.002)

    writing = asyncio.create_task(go_on())
    manifest = await backup(client, hub, tmp_path).run()
    going.set()
    await writing
    await other.close()

    up = manifest.stream("UP_00")
    assert up is not None
    last = up.state["last_seq"]
    assert last >= 10_000
    before = await content(client, "UP_00", last)
    shadow = await store.history("fleet.prod.veh.VID-001.desired")
    exported = json.loads((tmp_path / "backup/kv/TWIN_SHADOW.json").read_text())
    assert exported["fleet.prod.veh.VID-001.desired"] == {"revision": 7, "value": {"rate": 6}}

    await wipe(client, tmp_path)
    await restore(client, hub, tmp_path).run()
    api = JetStreamApi(client)
    info = await api.request("STREAM.INFO.UP_00")
    assert (info["state"]["first_seq"], info["state"]["last_seq"]) == (1, last)
    assert await content(client, "UP_00", last) == before
    assert (await api.request("STREAM.INFO.QUARANTINE"))["state"]["messages"] == 3
    for subject in names:
        message = await api.message("DICT", last_by_subj=subject)
        assert message is not None
        assert message.data == encode_dictionary(names[subject])
    again = await client.jetstream().key_value("TWIN_SHADOW")
    assert [
        (entry.revision, entry.value)
        for entry in await again.history("fleet.prod.veh.VID-001.desired")
    ] == [(entry.revision, entry.value) for entry in shadow]
    artifact = await Objects(client).info("map")
    assert artifact is not None
    assert b"".join([chunk async for chunk in Objects(client).content(artifact)]) == data
    async with await Registry.open(tmp_path / "hub" / "hub.db") as registry:
        assert list(await read_devices(registry)) == ["VID-001"]
        rows = await registry.fetch("SELECT body FROM dictionary ORDER BY body")
        assert [row[0] for row in rows] == sorted(names.values())
        # The same stream to the hub, though the server has made it anew.
        assert await read_position(registry, "UP_00") == ReadPosition(info["created"], 5, 0, 1, 1)
    down = await api.request("STREAM.INFO.DOWN_00")
    assert down["state"]["first_seq"] == 1_800_000_000 * 10**6


@pytest.mark.nats
async def test_hub_db_is_taken_before_up(hub: HubConfig, client: Client, tmp_path: Path) -> None:
    """What is read while the backup is taken: hub.db must not say that it was, where UP lacks it."""
    await write(client, "up.VID-001.f.battery", 10)
    taken: list[str] = []
    work = backup(client, hub, tmp_path)

    def told(item: str, done: int, of: int) -> None:
        if item == "UP_00" and not taken:
            taken.extend(load_manifest(tmp_path / "backup", PARTIAL).files)  # type: ignore[union-attr]

    work._progress = told
    await work.run()
    assert "hub.db" in taken
    assert "streams/TWIN_EVENTS.tar.s2" in taken


# From within: whoever watches from another process may come too late.
KILLS_ITSELF = """
import os, signal, sys, threading, time
from pathlib import Path
from backhaul_hub.cli.main import main

growing = Path(sys.argv.pop(1))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def watch():
    while not growing.exists():
        time.sleep(0.001)
    die()

def not_too_late(event, said):
    if event == "os.rename" and str(said[0]) == str(growing):
        die()

sys.addaudithook(not_too_late)
threading.Thread(target=watch, daemon=True).start()
main()
"""


@pytest.mark.nats
async def test_a_backup_that_was_killed_goes_on_and_keeps_what_is_finished(
    hub: HubConfig, client: Client, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Killed while UP is written, the largest and the last: it alone is written again."""
    await write(client, "up.VID-001.f.battery", 60_000)
    await write(client, "quarantine.UP_00.1.1", 3)
    target = tmp_path / "backup"
    growing = target / "streams" / "UP_00.tar.s2.new"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLS_ITSELF,
        str(growing),
        "backup",
        str(target),
        "--dir",
        str(tmp_path / "hub"),
    )
    assert await process.wait() == -signal.SIGKILL
    assert not (target / MANIFEST).exists()
    with pytest.raises(BackupError, match="no finished backup"):
        whole_backup(target)
    # As it is before the second run: what is kept is the same file, not another like it.
    kept = {path: path.stat().st_ino for path in (target / "streams").glob("*.s2")}
    kept[target / "hub.db"] = (target / "hub.db").stat().st_ino
    assert target / "streams" / "QUARANTINE.tar.s2" in kept
    manifest = await backup(client, hub, tmp_path).run()
    assert {path: path.stat().st_ino for path in kept} == kept
    assert not growing.exists()
    assert sorted(path.name for path in target.iterdir()) == [
        "config", "hub.db", "kv", "manifest.json", "streams",
    ]  # fmt: skip
    up = manifest.stream("UP_00")
    assert up is not None
    assert up.state["messages"] == 60_000
    with pytest.raises(BackupError, match="holds a finished backup"):
        await backup(client, hub, tmp_path).run()


@pytest.mark.nats
async def test_a_finished_file_that_was_damaged_is_taken_again(
    hub: HubConfig, client: Client, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 100)
    manifest = await backup(client, hub, tmp_path).run()
    target = tmp_path / "backup"
    (target / MANIFEST).unlink()
    store_manifest(target, manifest)
    file = target / "streams" / "UP_00.tar.s2"
    file.write_bytes(file.read_bytes()[:-1] + b"\0\0")
    await backup(client, hub, tmp_path).run()
    whole_backup(target)


@pytest.mark.nats
async def test_a_damaged_backup_is_not_put_back(
    hub: HubConfig, client: Client, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 100)
    await backup(client, hub, tmp_path).run()
    file = tmp_path / "backup" / "streams" / "UP_00.tar.s2"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BackupError, match=r"UP_00\.tar\.s2 is damaged"):
        restore(client, hub, tmp_path)


@pytest.mark.nats
async def test_what_came_back_other_than_it_was_is_said(
    hub: HubConfig, client: Client, tmp_path: Path
) -> None:
    """The files are as they were written, and yet the stream is not the one that was there."""
    await write(client, "up.VID-001.f.battery", 100)
    manifest = await backup(client, hub, tmp_path).run()
    up = manifest.stream("UP_00")
    assert up is not None
    up.blocks[0] = Block(1, 100, 100, "0" * 64)
    store_manifest(tmp_path / "backup", manifest, MANIFEST)
    await wipe(client, tmp_path)
    with pytest.raises(BackupError, match="UP_00 is not as it was: other messages between"):
        await restore(client, hub, tmp_path).run()
    # And the control plane knows that this hub is half.
    assert (tmp_path / "hub" / "restore.unfinished").exists()


@pytest.mark.nats
async def test_a_restore_that_was_cut_short_goes_on(
    hub: HubConfig, client: Client, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 2000)
    await write(client, "quarantine.UP_00.1.1", 3)
    await backup(client, hub, tmp_path).run()
    await wipe(client, tmp_path)
    work = restore(client, hub, tmp_path)

    def cut(item: str, done: int, of: int) -> None:
        if item == "TWIN_EVENTS":
            raise HubError("cut")

    work._progress = cut
    with pytest.raises(HubError, match="cut"):
        await work.run()
    api = JetStreamApi(client)
    made = (await api.request("STREAM.INFO.UP_00"))["created"]
    await restore(client, hub, tmp_path).run()
    assert (await api.request("STREAM.INFO.UP_00"))["created"] == made, "kept, not put back twice"
    assert (await api.request("STREAM.INFO.TWIN_EVENTS"))["config"]["sources"]
    assert not (tmp_path / "hub" / "restore.unfinished").exists()


@pytest.mark.nats
async def test_up_that_was_left_out_begins_where_it_was(
    hub: HubConfig, client: Client, tmp_path: Path
) -> None:
    """What sources it has taken all up to there, and would pass over what is below."""
    await write(client, "up.VID-001.f.battery", 100)
    await backup(client, hub, tmp_path, without_up=True).run()
    await wipe(client, tmp_path)
    await restore(client, hub, tmp_path).run()
    state = (await JetStreamApi(client).request("STREAM.INFO.UP_00"))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 101, 100)


@pytest.mark.nats
async def test_a_stream_goes_from_one_server_to_another_without_a_file(
    client: Client, tmp_path: Path
) -> None:
    """Also an empty one: its sequences go on where they were."""
    api = JetStreamApi(client)
    for name in ("full", "empty"):
        await api.request(
            f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_direct": True}
        )
        await write(client, f"{name}.x", 300)
    await api.request("STREAM.PURGE.empty")
    server = NatsServer(tmp_path / "other")
    server.start()
    there = await patient.connect(server.url)
    try:
        for name in ("full", "empty"):
            snapshot = await Snapshot.begin(client, api, name)
            await copy(snapshot, there, JetStreamApi(there), lambda config: config)
        assert await content(there, "full", 300) == await content(client, "full", 300)
        state = (await JetStreamApi(there).request("STREAM.INFO.empty"))["state"]
        assert (state["messages"], state["last_seq"]) == (0, 300)
        with pytest.raises(HubError, match="already"):
            await copy(await Snapshot.begin(client, api, "full"), there, JetStreamApi(there), dict)
    finally:
        await there.close()
        server.stop()
