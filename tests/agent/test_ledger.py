"""The ledger on real SQLite files: seqs, restarts, full and failing disks, damage."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest

from backhaul_agent.errors import (
    LedgerCorruptError,
    LedgerForeignError,
    LedgerNewerError,
    LedgerOlderError,
    LedgerStorageError,
)
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing, Quarantine, Staged
from backhaul_agent.ledger.schema import SCHEMA_VERSION, open_file
from backhaul_codec import Point, encode_point, peek
from backhaul_codec.wire.envelope import CHAINED_BYTES, HEADER_BYTES
from tests.agent.ledgers import MIB, FailingDisk, open_ledger, outgoing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        yield ledger
    finally:
        await ledger.close()


async def test_lanes_of_nodes_are_made_and_what_they_hold_outlives_their_naming(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    named = await open_ledger(path, lanes=("live", "bulk", "n_gps"))
    body = encode_point(Point(node="gps", type="t", time=1, value=1.0), epoch=0, seq=0)
    await named.commit(LedgerChanges(messages=[Outgoing("n_gps", "n.gps.p.gps.t.%", body)]))
    await named.close()
    plain = await open_ledger(path)
    assert list(plain.lanes) == ["live", "bulk", "n_gps"]
    assert (plain.lanes["n_gps"].last_seq, plain.lanes["bulk"].last_seq) == (1, 0)
    assert [row.subject for row in await plain.read("n_gps", 1, 9)] == ["n.gps.p.gps.t.%"]
    await plain.close()


async def test_seqs_have_no_holes_and_are_stamped_into_the_bodies(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges([outgoing("live"), outgoing("bulk"), outgoing("live")]))
    await ledger.commit(LedgerChanges([outgoing("live")]))
    live = await ledger.read("live", 1, 10)
    assert [row.seq for row in live] == [1, 2, 3]
    assert [(peek(row.body).epoch, peek(row.body).seq) for row in live] == [
        (42, 1),
        (42, 2),
        (42, 3),
    ]
    assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [1]
    assert ledger.lanes["live"].last_seq == 3


async def test_a_reopened_ledger_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first = await open_ledger(path)
    await first.commit(
        LedgerChanges([outgoing()], [Staged("n", 1, b"one")], watermarks={"bulk": 1})
    )
    await first.close()
    second = await open_ledger(path, epoch=lambda: 99)
    try:
        assert second.epoch == 42
        assert (second.lanes["bulk"].next_seq, second.lanes["bulk"].watermark) == (2, 1)
        assert [(row.id, row.node, row.body, row.intact) for row in await second.staged()] == [
            (1, "n", b"one", True)
        ]
        assert await second.commit(LedgerChanges(staged=[Staged("n", 1, b"two")], unstage=[1])) == [
            2
        ]
        assert [row.body for row in await second.staged()] == [b"two"]
    finally:
        await second.close()


async def test_the_epoch_is_never_zero(tmp_path: Path) -> None:
    draws = iter([0, 0, 7])
    ledger = await open_ledger(tmp_path / "l.db", epoch=lambda: next(draws))
    assert ledger.epoch == 7
    await ledger.close()


async def test_synced_at_every_commit(ledger: Ledger) -> None:
    async def pragma(name: str) -> Any:
        (row,) = await ledger._db.execute_fetchall(f"PRAGMA {name}")
        return row[0]

    assert await pragma("journal_mode") == "wal"
    assert await pragma("synchronous") == 2  # FULL


async def test_a_full_disk_changes_nothing_and_heals(tmp_path: Path) -> None:
    """SQLite's own ENOSPC path: a file that may not grow."""

    async def small(path: Path) -> aiosqlite.Connection:
        db = await open_file(path)
        await db.execute("PRAGMA max_page_count = 40")
        return db

    ledger = await open_ledger(tmp_path / "ledger.db", opener=small)
    try:
        await ledger.commit(LedgerChanges([outgoing()]))
        with pytest.raises(LedgerStorageError, match="full"):
            await ledger.commit(LedgerChanges([outgoing(size=400_000)], [Staged("n", 1, b"x")]))
        assert ledger.lanes["bulk"].last_seq == 1
        assert await ledger.staged() == []
        await ledger.commit(LedgerChanges([outgoing()]))
        assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [1, 2]
    finally:
        await ledger.close()


@pytest.mark.parametrize("at", ["BEGIN", "COMMIT"])
@pytest.mark.parametrize(
    "error",
    [sqlite3.OperationalError("disk I/O error"), OSError(28, "No space left on device")],
    ids=["sqlite", "enospc"],
)
async def test_a_failing_write_is_one_clear_error_and_heals(
    tmp_path: Path, at: str, error: Exception
) -> None:
    disk = FailingDisk()
    ledger = await open_ledger(tmp_path / "ledger.db", opener=disk)
    try:
        disk.at, disk.error = at, error
        for _ in range(2):
            with pytest.raises(LedgerStorageError, match=r"commit failed: .*(I/O|space)"):
                await ledger.commit(LedgerChanges([outgoing()]))
        disk.error = None
        await ledger.commit(LedgerChanges([outgoing()]))
        assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [1]
    finally:
        await ledger.close()


async def test_what_rests_on_a_commit_that_was_written_after_all_is_refused(tmp_path: Path) -> None:
    """Its writer was told that it failed, and sends the same again."""
    lying = False

    async def opener(path: Path) -> aiosqlite.Connection:
        db = await open_file(path)
        real = db.execute

        async def commit() -> None:
            await real("COMMIT")
            raise sqlite3.OperationalError("disk I/O error")

        def execute(sql: str, parameters: Any = None) -> Any:
            return commit() if lying and sql == "COMMIT" else real(sql, parameters)

        db.execute = execute  # type: ignore[method-assign]
        return db

    def rows(said: str) -> LedgerChanges:
        return LedgerChanges([outgoing()], meta={"replay.0": said}, expected={"replay.0": None})

    ledger = await open_ledger(tmp_path / "ledger.db", opener=opener)
    try:
        lying = True
        with pytest.raises(LedgerStorageError):
            await ledger.commit(rows("5 rows"))
        lying = False
        with pytest.raises(LedgerStorageError, match="written after all"):
            await ledger.commit(rows("5 rows"))
        assert ledger.meta["replay.0"] == "5 rows"
        await ledger.commit(LedgerChanges([outgoing()], expected={"replay.0": "5 rows"}))
        assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [1, 2]
    finally:
        await ledger.close()


async def test_a_connection_that_cannot_roll_back_is_replaced(tmp_path: Path) -> None:
    disk = FailingDisk()
    ledger = await open_ledger(tmp_path / "ledger.db", opener=disk)
    try:
        opened = disk.opened
        disk.at, disk.error = ("COMMIT", "ROLLBACK"), sqlite3.OperationalError("disk I/O error")  # type: ignore[assignment]
        with pytest.raises(LedgerStorageError):
            await ledger.commit(LedgerChanges([outgoing()]))
        assert disk.opened == opened + 1
        disk.error = None
        await ledger.commit(LedgerChanges([outgoing()]))
        assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [1]
    finally:
        await ledger.close()


async def test_a_lock_held_by_another_program_is_one_clear_error(tmp_path: Path) -> None:
    async def impatient(path: Path) -> aiosqlite.Connection:
        return await aiosqlite.connect(path, isolation_level=None, timeout=0.01)

    ledger = await open_ledger(tmp_path / "ledger.db", opener=impatient)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerStorageError, match="locked"):
            await ledger.commit(LedgerChanges([outgoing()]))
        other.execute("ROLLBACK")
        await ledger.commit(LedgerChanges([outgoing()]))
        assert ledger.lanes["bulk"].last_seq == 1
    finally:
        other.close()
        await ledger.close()


async def test_full_means_forgetting_what_the_hub_holds_oldest_first(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "ledger.db", bytes_max=MIB)
    try:
        for _ in range(30):
            await ledger.commit(LedgerChanges([outgoing(size=20_000), outgoing("live", 20_000)]))
            await ledger.make_room()
        assert ledger.budget.full
        assert ledger.forgotten == 0
        await ledger.commit(LedgerChanges(watermarks={"bulk": 20, "live": 3}))
        await ledger.make_room()
        assert not ledger.budget.full
        assert ledger.forgotten > 0
        left = await ledger.read("bulk", 1, 100)
        assert [row.seq for row in left][-10:] == list(range(21, 31))
        assert [row.seq for row in await ledger.read("live", 4, 100)] == list(range(4, 31))
        await ledger.commit(LedgerChanges([outgoing()]))
        assert ledger.lanes["bulk"].last_seq == 31
    finally:
        await ledger.close()


async def test_seqs_go_on_after_everything_was_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path, bytes_max=MIB)
    await ledger.commit(LedgerChanges([outgoing(size=900_000), outgoing(size=200_000)]))
    await ledger.commit(LedgerChanges(watermarks={"bulk": 2}))
    await ledger.make_room()
    assert await ledger.read("bulk", 1, 10) == []
    await ledger.close()
    ledger = await open_ledger(path)
    assert ledger.lanes["bulk"].next_seq == 3
    await ledger.close()


async def test_quarantine_keeps_the_row_and_the_reason(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges([outgoing(), outgoing()], [Staged("n", 3, b"rows")]))
    rows = [
        Quarantine("bulk", 1, "bad crc"),
        Quarantine("bulk", 9, "missing"),
        Quarantine("staged", 1, "bad"),
    ]
    await ledger.commit(LedgerChanges(quarantine=rows, time_ns=5))
    await ledger.commit(LedgerChanges(quarantine=rows[:1], time_ns=6))  # a repeat changes nothing
    assert [row.seq for row in await ledger.read("bulk", 1, 10)] == [2]
    assert await ledger.staged() == []
    assert await ledger.explained(ledger.lanes["bulk"], 1, 10) == {1, 9}
    found = await ledger.query(
        "SELECT lane, seq, body IS NULL, reason FROM quarantined ORDER BY id"
    )
    assert found == [
        ("bulk", 1, 0, "bad crc"), ("bulk", 9, 1, "missing"), ("staged", 0, 0, "bad"),
    ]  # fmt: skip


async def test_the_classes_are_summed_up_whoever_writes(ledger: Ledger) -> None:
    one = len(outgoing().body) + CHAINED_BYTES - HEADER_BYTES
    dear = outgoing("live")._replace(value_class=2, times=(5, 5))
    await ledger.commit(LedgerChanges([outgoing(), outgoing(), outgoing("live"), dear]))
    await ledger.commit(LedgerChanges(quarantine=[Quarantine("bulk", 1, "bad")]))
    await ledger._db.execute("UPDATE messages SET body = x'00' WHERE value_class = 2")
    found = await ledger.query("SELECT messages, bytes FROM classes ORDER BY value_class")
    assert found == [(1, one + 3), (1, one + 7), (1, 1 + 7), (0, 0), (0, 0)]
    times = await ledger.query("SELECT t_lo, t_hi FROM messages WHERE t_lo IS NOT NULL")
    assert times == [(5, 5)]


async def test_a_damaged_staged_row_is_noticed(ledger: Ledger) -> None:
    await ledger.commit(
        LedgerChanges(staged=[Staged("n", 1, b"good"), Staged("n", 1, b"soon bad")])
    )
    await ledger._db.execute("UPDATE staged SET body = x'00' WHERE id = 2")
    assert [row.intact for row in await ledger.staged()] == [True, False]


async def test_sizes_cover_a_range_once(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges([outgoing() for _ in range(200)]))
    runs = await ledger.sizes(ledger.lanes["bulk"], 10, 180)
    assert runs[-1][0] == 180
    one = len(outgoing().body) + CHAINED_BYTES - HEADER_BYTES + len("f.n") + 128
    assert sum(size for _, size in runs) == 171 * one


def plain_sqlite(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()


def newer(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE boots ADD COLUMN more")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()


def older(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE boots DROP COLUMN at_ns")
    db.execute("PRAGMA user_version = 1")
    db.close()


def no_epoch(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DELETE FROM meta WHERE name = 'epoch'")
    db.commit()
    db.close()


def no_tables(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TABLE lanes")
    db.close()


async def test_a_file_that_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    plain_sqlite(path)
    with pytest.raises(LedgerForeignError, match=r"no ledger .*check ledger\.path"):
        await open_ledger(path)
    db = sqlite3.connect(path)
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    db.close()


async def test_the_ledger_of_another_device_is_refused(tmp_path: Path) -> None:
    await (await open_ledger(tmp_path / "l.db")).close()
    with pytest.raises(LedgerForeignError, match="belongs to device 'VID-001', not 'VID-002'"):
        await open_ledger(tmp_path / "l.db", device="VID-002")


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (newer, LedgerNewerError),
        (older, LedgerOlderError),
        (no_epoch, LedgerCorruptError),
        (no_tables, LedgerCorruptError),
        (lambda path: path.write_bytes(b"garbage" * 1000), LedgerCorruptError),
        (
            lambda path: path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8000),
            LedgerCorruptError,
        ),
    ],
    ids=["newer", "older", "no epoch", "no tables", "no database", "pages overwritten"],
)
async def test_an_unusable_ledger_says_what_to_do(
    tmp_path: Path, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    damage(path)
    with pytest.raises(error, match=r"ledger .*ledger\.db: .*\((move|install|let)"):
        await open_ledger(path)


async def test_a_directory_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerStorageError, match="opening failed: unable to open"):
        await open_ledger(tmp_path / "missing" / "ledger.db")
