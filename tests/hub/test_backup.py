"""Backups of a real server's streams: taken while writes go on, cut short, damaged, put back."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sqlite3
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.backup import Backup
from backhaul_hub.backup_choice import NOT_KEPT, Choice, chosen
from backhaul_hub.backup_files import configuration_files, copy_database
from backhaul_hub.config import load
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.jetstream import JetStreamApi
from backhaul_hub.manifest import (
    MANIFEST,
    PARTIAL,
    FileEntry,
    Manifest,
    check_files,
    load_manifest,
    new_file,
    store_manifest,
)
from backhaul_hub.objects import Objects
from backhaul_hub.registry import Device, Position, Registry
from backhaul_hub.restore import Restore, whole_backup
from backhaul_hub.rotation import begin_next, drop_oldest
from backhaul_hub.snapshots import Snapshot, copy
from backhaul_hub.stream_digest import (
    Block,
    compare,
    digest_blocks,
    ranges,
    state_differs,
    still_there,
)
from backhaul_hub.streams import declared_streams, reconcile
from demo import patient
from tests.support.nats_server import NatsServer

from .test_twin_streams import make_hub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from backhaul_hub.jetstream import Json

SECOND_NS = 10**9


class FixedClock:
    """Stands still at the time of a backup."""

    def now_ns(self) -> int:
        return 1_800_000_000 * SECOND_NS

    def monotonic_s(self) -> float:
        return 0.0


# What is chosen, and what counts as the same: pure.


def test_up_comes_last_and_what_is_made_anew_does_not_come() -> None:
    """TWIN_EVENTS sources UP: an UP that ends before what it has taken would be passed over."""
    names = {"UP_00", "UP_01", "QUARANTINE", "TWIN_EVENTS", "ZZ", *NOT_KEPT}
    assert chosen(names, Choice()) == ["QUARANTINE", "TWIN_EVENTS", "ZZ", "UP_00", "UP_01"]
    assert chosen(names, Choice(without_up=True)) == ["QUARANTINE", "TWIN_EVENTS", "ZZ"]
    assert chosen(names, Choice(("UP_01", "ZZ"))) == ["ZZ", "UP_01"]


@pytest.mark.parametrize("name", ["DOWN_00", "UP_07"])
def test_a_stream_that_cannot_be_taken_is_refused(name: str) -> None:
    with pytest.raises(BackupError, match=name):
        chosen({"UP_00", "DOWN_00"}, Choice((name,)))


def test_blocks_end_where_all_streams_blocks_end() -> None:
    assert ranges(8000, 20_000) == [(8000, 8191), (8192, 16_383), (16_384, 20_000)]
    assert ranges(5, 4) == []


def test_a_difference_is_said_with_its_place() -> None:
    block = Block(1, 9, 9, "aa")
    assert compare([block], [block]) == ""
    assert compare([block], [Block(1, 9, 7, "bb")]) == "2 messages fewer between sequence 1 and 9"
    assert compare([block], [Block(1, 9, 9, "bb")]) == "other messages between sequence 1 and 9"


def info(first: int, last: int, messages: int, *, deleted: int = 0, **config: object) -> Json:
    state = {"first_seq": first, "last_seq": last, "messages": messages, "bytes": 1}
    return {
        "config": {"retention": "limits"} | config,
        "state": state | {"num_deleted": deleted},
        "created": "2026-11-21T00:00:00Z",
        "ts": "2026-11-21T00:00:00Z",
    }


def test_numbers_that_differ_after_a_restore_are_said() -> None:
    was = {"first_seq": 3, "last_seq": 9, "messages": 7}
    assert state_differs(was, info(3, 9, 7), grows=False) == ""
    assert "ends at sequence 8" in state_differs(was, info(3, 8, 6), grows=True)
    assert "ends at sequence 11" in state_differs(was, info(3, 11, 9), grows=False)
    assert state_differs(was, info(3, 11, 9), grows=True) == ""
    assert "begins at sequence 4" in state_differs(was, info(4, 9, 6), grows=False)
    assert "holds 6 messages" in state_differs(was, info(3, 9, 6), grows=False)
    # Age has taken some since.
    assert state_differs(was, info(5, 9, 5, max_age=SECOND_NS), grows=False) == ""


def test_digests_count_only_for_what_stood_still() -> None:
    blocks = [Block(1, 8191, 8191, "a"), Block(8192, 9000, 809, "b")]
    before = info(1, 9000, 9000)
    assert still_there(blocks, before, info(1, 9100, 9100)) == blocks
    assert still_there(blocks, before, info(5, 9100, 9096)) == blocks[1:]
    assert still_there(blocks, before, info(1, 9000, 8999, deleted=1)) == []
    newest_only = info(1, 9001, 9000, max_msgs_per_subject=5)
    assert still_there(blocks, before, newest_only) == []
    assert still_there(blocks, before, info(1, 9000, 9000, max_msgs_per_subject=5)) == blocks


# Manifest and files.


def manifest_of(directory: Path, **files: bytes) -> Manifest:
    manifest = Manifest("2.15.1", "prod", "then")
    for name, data in files.items():
        with new_file(directory / name) as file:
            file.write(data)
        manifest.files[name] = file.entry()
    return manifest


def test_a_damaged_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, a=b"aaaa", b=b"bbbb", c=b"cccc", d=b"dddd")
    check_files(tmp_path, manifest)
    (tmp_path / "a").write_bytes(b"aaXa")
    (tmp_path / "b").write_bytes(b"bb")
    (tmp_path / "c").unlink()
    with pytest.raises(BackupError) as caught:
        check_files(tmp_path, manifest)
    said = caught.value.message
    assert f"{tmp_path / 'a'} is damaged" in said
    assert f"{tmp_path / 'b'} has 2 bytes, not 4" in said
    assert f"{tmp_path / 'c'}" in said
    assert f"{tmp_path / 'd'}" not in said


def test_files_of_a_backup_are_for_their_owner_alone(tmp_path: Path) -> None:
    store_manifest(tmp_path, manifest_of(tmp_path, a=b"secret"), MANIFEST)
    for name in ("a", MANIFEST):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert load_manifest(tmp_path) is not None


def test_a_manifest_that_is_none_or_of_another_time_is_refused(tmp_path: Path) -> None:
    assert load_manifest(tmp_path) is None
    with pytest.raises(BackupError, match="no finished backup"):
        whole_backup(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(BackupError, match=MANIFEST):
        load_manifest(tmp_path)
    store_manifest(tmp_path, Manifest("2.15.1", "prod", "then", format=9), MANIFEST)
    with pytest.raises(BackupError, match="format 9"):
        load_manifest(tmp_path)


def test_a_file_that_the_disk_does_not_take_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill() -> None:
        with new_file(tmp_path / "a") as file:
            file.write(b"begun")
            raise OSError(28, "No space left on device")

    with pytest.raises(BackupError, match="No space"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_every_server_of_a_cluster_is_kept(tmp_path: Path) -> None:
    kept = ["hub.toml", "tls/ca.pem", "creds/control.creds", "devices/VID-001/identity.json"]
    for server in ("a", "b", "c"):
        kept += [f"servers/{server}/hub.conf", f"servers/{server}/tls/server.pem"]
    for name in [*kept, "servers/a/accounts/A.jwt", "servers/a/jetstream/x", "hub.db"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = [str(path.relative_to(tmp_path)) for path in configuration_files(tmp_path)]
    assert sorted(found) == sorted(kept)


def test_a_database_is_copied_while_somebody_writes(tmp_path: Path) -> None:
    source = sqlite3.connect(tmp_path / "hub.db")
    source.execute("PRAGMA journal_mode = WAL")
    source.execute("CREATE TABLE t (x)")
    source.execute("INSERT INTO t VALUES (1)")
    source.commit()
    source.execute("INSERT INTO t VALUES (2)")  # not committed: not in the copy
    copy_database(tmp_path / "hub.db", tmp_path / "copy")
    source.close()
    assert sqlite3.connect(tmp_path / "copy").execute("SELECT x FROM t").fetchall() == [(1,)]
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="does not exist"):
        copy_database(tmp_path / "hub.db", tmp_path / "copy")
    (tmp_path / "hub.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(BackupError, match=r"hub\.db"):
        copy_database(tmp_path / "hub.db", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_backups_rotate_and_an_unfinished_one_is_gone_on_with(tmp_path: Path) -> None:
    at = 1_800_000_000 * SECOND_NS
    made = []
    for day in range(4):
        made.append(begin_next(tmp_path, at + day * 86_400 * SECOND_NS))
        made[-1].mkdir()
        store_manifest(made[-1], Manifest("", "", ""), MANIFEST)
    (tmp_path / "mine").mkdir()
    unfinished = begin_next(tmp_path, at + 9 * 86_400 * SECOND_NS)
    unfinished.mkdir()
    store_manifest(unfinished, Manifest("", "", ""), PARTIAL)
    assert begin_next(tmp_path, at + 10 * 86_400 * SECOND_NS) == unfinished
    assert drop_oldest(tmp_path, 2) == made[:2]
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [made[2].name, made[3].name, unfinished.name, "mine"]
    )


# With a server.


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connection = await patient.connect(nats_server.url)
    yield connection
    await connection.close()


@pytest.fixture
async def hub(tmp_path: Path, nats_server: NatsServer, client: Client) -> HubConfig:
    """A hub's streams and hub.db, without vehicles."""
    return await hub_at(client, tmp_path / "hub", nats_server.port)


async def hub_at(client: Client, directory: Path, port: int) -> HubConfig:
    """Make a hub, its streams and hub.db, without vehicles."""
    make_hub(directory, port=port, free=40 << 30)
    return await streams_at(client, directory)


async def streams_at(client: Client, directory: Path) -> HubConfig:
    """Make the streams and hub.db of a hub."""
    config = load(directory)
    api = JetStreamApi(client)
    for declared in declared_streams(config):
        name = declared["name"]
        # Not sourced only, so that the test can write; UP's own subject takes nothing else.
        extra = {"subjects": ["up.>"]} if name == "UP_00" else {}
        await reconcile(api, declared | {"max_bytes": 64 << 20} | extra)
    async with await Registry.open(directory / "hub.db") as registry:
        await registry.add_device(Device("VID-001", "token", "hash", 1))
        created = (await api.request("STREAM.INFO.UP_00"))["created"]
        await registry.store("UP_00", Position(created, 5, 0, 1, 1), {})
    return config


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


async def write(client: Client, subject: str, count: int) -> None:
    """Store messages of 1 kB that cannot be compressed."""
    for _ in range(count - 1):
        await client.publish(subject, os.urandom(1000))
    # The stream answers once it has it, and took the others before.
    await client.request(subject, os.urandom(1000), timeout=30)


async def content(client: Client, stream: str, last: int) -> list[Block]:
    return await digest_blocks(client, stream, ranges(1, last))


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
    again = await client.jetstream().key_value("TWIN_SHADOW")
    assert [
        (entry.revision, entry.value)
        for entry in await again.history("fleet.prod.veh.VID-001.desired")
    ] == [(entry.revision, entry.value) for entry in shadow]
    artifact = await Objects(client).info("map")
    assert artifact is not None
    assert b"".join([chunk async for chunk in Objects(client).content(artifact)]) == data
    async with await Registry.open(tmp_path / "hub" / "hub.db") as registry:
        assert list(await registry.devices()) == ["VID-001"]
        # The same stream to the hub, though the server has made it anew.
        assert await registry.position("UP_00") == Position(info["created"], 5, 0, 1, 1)
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
from backhaul_hub.cli import main

growing = Path(sys.argv.pop(1))

def watch():
    while not growing.exists():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

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


def test_an_entry_says_what_was_written(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"ab")
        file.write(b"c")
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file.entry() == FileEntry(3, sha)
