"""hub.db: what is stored is there again, and a file that is not ours is refused."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import Explained, LaneState
from backhaul_hub.db import write_turn
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import add_device, node_changes, read_devices
from backhaul_hub.db.older_commands import OLDER_COMMANDS
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import RegistryError
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_lanes, read_position, store_read
from tests.support.hub_db_tables import tables_after

if TYPE_CHECKING:
    from pathlib import Path

LANE = LaneKey("VID-001", "bulk", 7)
STATE = LaneState(
    held=RangeSet([(1, 5), (9, 9)]),
    aged=RangeSet([(1, 2)]),
    seen=RangeSet([(1, 5), (8, 9)]),
    explained=RangeSet([(6, 6)]),
    receipts=[Explained(6, 6, "evicted")],
    said=11,
    messages=7,
    repeats=2,
    body_bytes=600,
    last_seen_ns=123,
)


async def test_lanes_and_position_come_back_together(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await store_read(registry, "UP_00", ReadPosition("t", 9, 1, 77, 3), {LANE: STATE})
    async with await Registry.open(tmp_path / "hub.db") as registry:
        assert await read_position(registry, "UP_00") == ReadPosition("t", 9, 1, 77, 3)
        assert await read_lanes(registry) == {LANE: STATE}
        assert await read_position(registry, "UP_01") == ReadPosition()


async def test_what_is_written_after_another_opened_it_here_is_read_by_other_programs(
    tmp_path: Path,
) -> None:
    """A process that closes any descriptor of a file gives all its locks there up, and SQLite goes by these."""
    path = tmp_path / "hub.db"

    def read_elsewhere() -> str:
        code = f"import sqlite3; print(sqlite3.connect({str(path)!r}).execute('SELECT count(*) FROM device').fetchone())"
        return subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    async with await Registry.open(path) as registry:
        await add_device(registry, Device("VID-001", "ab", "", 1))
        async with await Registry.open(path) as other:
            await read_devices(other)
        assert await asyncio.to_thread(read_elsewhere) == "(1,)"
        await add_device(registry, Device("VID-002", "cd", "", 1))
        assert await asyncio.to_thread(read_elsewhere) == "(2,)"


async def test_synced_at_every_commit(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        pragmas = [
            await registry.fetch(f"PRAGMA {name}") for name in ("journal_mode", "synchronous")
        ]
    assert [row[0] for [row] in pragmas] == ["wal", 2]  # FULL


async def test_a_writer_that_is_cancelled_while_it_waits_for_its_turn_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        with contextlib.closing(sqlite3.connect(tmp_path / "hub.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(
                store_read(registry, "UP_00", ReadPosition("t", 1, 0), {})
            )
            await asyncio.sleep(0.05)  # its BEGIN waits for that one's end
            writing.cancel()
            await asyncio.sleep(0)
            other.rollback()
        await asyncio.gather(writing, return_exceptions=True)
        await store_read(registry, "UP_00", ReadPosition("t", 2, 0), {})
        assert await read_position(registry, "UP_00") == ReadPosition("t", 2, 0)


async def test_nothing_is_written_where_the_disk_refuses(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await store_read(registry, "UP_00", ReadPosition("t", 1, 0), {})
        full = LaneState(last_seen_ns=1 << 70)  # more than SQLite's integers hold
        with pytest.raises(OverflowError):
            await store_read(registry, "UP_00", ReadPosition("t", 2, 0), {LANE: full})
        await store_read(registry, "UP_00", ReadPosition("t", 3, 0), {})
        assert await read_position(registry, "UP_00") == ReadPosition("t", 3, 0)
        assert await read_lanes(registry) == {}


async def test_readers_of_several_shards_store_side_by_side(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:

        async def shard(number: int) -> None:
            for seq in range(1, 30):
                lane = LANE._replace(device=f"VID-{number}")
                await store_read(
                    registry, f"UP_{number:02}", ReadPosition("t", seq, 0), {lane: STATE}
                )

        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(shard(number))
        assert len(await read_lanes(registry)) == 4
        assert [(await read_position(registry, f"UP_0{n}")).seq for n in range(4)] == [29] * 4


async def test_a_device_is_added_once(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        device = Device("VID-001", "ab", "hash", 1)
        await add_device(registry, device)
        with pytest.raises(RegistryError, match="exists already"):
            await add_device(registry, device)
        assert await read_devices(registry) == {"VID-001": device}


@pytest.mark.parametrize("device", ["", "VID 1", "-x", "a.b", "a" * 64, "up.>", "é"])
async def test_no_device_with_an_id_that_is_none(tmp_path: Path, device: str) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        with pytest.raises(RegistryError, match="is no device id"):
            await add_device(registry, Device(device, "ab", "hash", 1))


async def test_rows_of_a_consumer_stand_or_fall_with_the_position(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        device = RowChange("INSERT INTO device VALUES (?, ?, ?, ?)", [("VID-001", "ab", "hash", 1)])
        await store_read(registry, "UP_00", ReadPosition("t", 1, 0), {}, [device])
        assert list(await read_devices(registry)) == ["VID-001"]
        with pytest.raises(RegistryError, match="UNIQUE"):
            await store_read(registry, "UP_00", ReadPosition("t", 2, 0), {LANE: STATE}, [device])
        assert await read_position(registry, "UP_00") == ReadPosition("t", 1, 0)
        assert await read_lanes(registry) == {}


@pytest.mark.parametrize(("version", "hint"), [(1, "make the hub again"), (99, "a newer one")])
async def test_another_schema_is_refused(tmp_path: Path, version: int, hint: str) -> None:
    with sqlite3.connect(tmp_path / "hub.db") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(RegistryError, match=f"schema {version}, .*{hint}"):
        await Registry.open(tmp_path / "hub.db")


async def test_nodes_with_streams_of_their_own_come_back(tmp_path: Path) -> None:
    device = Device("VID-001", "ab", "hash", 1, nodes=("battery", "gps"))
    other = Device("VID-002", "cd", "hash", 1, nodes=("battery",))
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await add_device(registry, device)
        await add_device(registry, other)
        with pytest.raises(RegistryError, match="exists already"):
            await add_device(registry, Device("VID-001", "ef", "hash", 1, nodes=("door",)))
        assert await read_devices(registry) == {"VID-001": device, "VID-002": other}
        changed = replace(device, nodes=("gps",), leaving=("battery",))
        await registry.write(node_changes(changed))
        assert await read_devices(registry) == {"VID-001": changed, "VID-002": other}


# By the version that brought them: the first came with schema 3.
LATER = (
    "device_node", "command", "shadow", "enrolment", "revocation", "person", "rotation",
    "account_generation", "vehicle", "import_source", "chain", "mark_chain", "outcome", "dictionary",
    "alert", "page_link", "lane_log", "erasure",
)  # fmt: skip


@pytest.mark.parametrize("version", range(2, 2 + len(LATER)))
async def test_an_older_hub_db_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path, lacking = tmp_path / "hub.db", LATER[version - 2 :]
    async with await Registry.open(path) as registry:
        await add_device(registry, Device("VID-001", "ab", "hash", 1))
        await store_read(registry, "UP_00", ReadPosition("t", 9, 1, 77, 3), {LANE: STATE})
    with sqlite3.connect(path) as before:
        tables = [name for name in lacking if not name.endswith(("chain", "outcome"))]
        if "import_source" in lacking:
            tables += ["import_epoch", "import_hour", "import_stream"]
        older = "".join(f"DROP TABLE {table};" for table in {*tables, *tables_after(version)})
        if "command" not in lacking:
            older += "DROP TABLE command;" + OLDER_COMMANDS
        if "mark_chain" in lacking:
            older += "ALTER TABLE mark DROP COLUMN chain;"
        if "chain" in lacking:
            older += "ALTER TABLE lane DROP COLUMN chain;"
        if version < 7:
            older += "ALTER TABLE device RENAME COLUMN public_key TO password_hash;"
        before.executescript(f"{older} PRAGMA user_version = {version};")
    before.close()
    with pytest.raises(RegistryError, match=rf"schema {version}, .*backhaul-hub up"):
        await Registry.open_existing(path)
    async with await Registry.open(path) as registry:
        # Where it had a password, it has no key until it is enrolled anew.
        key = "" if version < 7 else "hash"
        assert await read_devices(registry) == {"VID-001": Device("VID-001", "ab", key, 1)}
        assert await read_lanes(registry) == {LANE: STATE}
        await registry.write(node_changes(Device("VID-001", "ab", "hash", 1, nodes=("gps",))))
        await registry.write([RowChange("INSERT INTO shadow VALUES (?, ?)", [("VID-001", "{}")])])
    async with await Registry.open_existing(path) as registry:
        assert (await read_devices(registry))["VID-001"].nodes == ("gps",)


async def test_a_database_that_lost_a_table_is_an_error_of_ours(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        with sqlite3.connect(tmp_path / "hub.db") as other:
            other.execute("DROP TABLE device")
        other.close()
        with pytest.raises(RegistryError, match="no such table"):
            await read_devices(registry)
        with pytest.raises(RegistryError, match="no such table"):
            await add_device(registry, Device("VID-001", "ab", "hash", 1))


async def test_what_is_told_waits_for_what_is_being_stored_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_turn, "_STORED_S", 60.0)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.turn.acquire()
        waiting = asyncio.create_task(write_turn.stored(registry))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        registry.turn.release()
        await waiting

        monkeypatch.setattr(write_turn, "_STORED_S", 0.01)
        async with registry.turn:
            await write_turn.stored(registry)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hub.db").write_bytes(b"this is no database, and long enough to tell" * 40)
    with pytest.raises(RegistryError, match=r"hub\.db: file is not a database"):
        await Registry.open(tmp_path / "hub.db")
