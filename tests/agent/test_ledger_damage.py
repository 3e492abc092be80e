"""A ledger that is cut short, or has flipped bits: nothing of it is taken for what it was not.

What is in rows that no checksum covers is in test_ledger_odd_rows.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from contextlib import closing
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from backhaul_agent.errors import (
    LedgerCorruptError,
    LedgerForeignError,
    LedgerNewerError,
    LedgerStorageError,
)
from backhaul_agent.ledger.damage import asides, frames_committed, set_aside
from backhaul_agent.ledger.schema import SCHEMA, SCHEMA_VERSION, TABLES
from backhaul_codec import CodecError, peek
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.addressed import check_addressed
from tests.agent.ledgers import commit, open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow

COMMITS = 16


class Content(NamedTuple):
    """Bodies by seq, None where a lane would set the row aside, and the id and body of each staged row."""

    bodies: dict[int, bytes | None]
    staged: dict[int, bytes]


async def content(ledger: Ledger) -> Content:
    rows = await ledger.read("bulk", 1, 1000)
    staged = {row.id: row.body for row in await ledger.staged() if row.intact}
    return Content({row.seq: row.body if sound(row) else None for row in rows}, staged)


def sound(row: LedgerRow) -> bool:
    """Whether a lane would send it."""
    try:
        check_addressed(parse_leaf(row.subject), row.body)
        header = peek(row.body)
    except (CodecError, SubjectError):
        return False
    return (header.epoch, header.seq) == (42, row.seq)


@pytest.fixture
async def killed(tmp_path: Path) -> tuple[Path, Content]:
    """The files of a ledger as a kill leaves them, and what is in it; half of it is in the log alone."""
    (tmp_path / "whole").mkdir()
    ledger = await open_ledger(tmp_path / "whole" / "ledger.db")
    for number in range(COMMITS):
        if number == COMMITS // 2:
            await ledger.fold()
        await commit(ledger, number)
    whole = await content(ledger)
    there = tmp_path / "killed"
    shutil.copytree(tmp_path / "whole", there)
    await ledger.close()
    return there / "ledger.db", whole


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def test_a_log_that_is_whole_is_no_reason_to_doubt(killed: tuple[Path, Content]) -> None:
    path, whole = killed
    assert frames_committed(path) > 0
    ledger = await open_ledger(path)
    assert ledger.went_back == ""
    assert await content(ledger) == whole
    await ledger.close()


@pytest.mark.parametrize(
    ("size_after", "page"), [(0, 4096), (9, 2000)], ids=["killed", "the disk was full"]
)
async def test_an_unfinished_commit_at_the_end_of_the_log_is_no_damage(
    killed: tuple[Path, Content], size_after: int, page: int
) -> None:
    """A kill leaves pages without the one that ends it, a full disk that one up to its middle."""
    path, whole = killed
    log = bytearray(log_of(path).read_bytes())
    end = end_of(frames_committed(path))
    log[end:] = struct.pack(">2I8s2I", 1, size_after, bytes(log[16:24]), 0, 0) + bytes(page)
    log_of(path).write_bytes(log)
    ledger = await open_ledger(path)
    assert ledger.went_back == ""
    assert await content(ledger) == whole
    await ledger.close()


def end_of(frames: int) -> int:
    """Return how long a log with so many frames is."""
    return 32 + frames * (24 + 4096)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
async def test_a_log_cut_short_is_known_by_its_index(
    killed: tuple[Path, Content], part: float
) -> None:
    path, whole = killed
    log = log_of(path)
    log.write_bytes(log.read_bytes()[: int(end_of(frames_committed(path)) * part)])
    ledger = await open_ledger(path)
    assert "cut short" in ledger.went_back
    assert (await content(ledger)).bodies.items() < whole.bodies.items()
    await ledger.close()


async def test_a_flipped_bit_in_the_log_is_known_by_what_stands_behind_it(
    killed: tuple[Path, Content],
) -> None:
    path, whole = killed
    log = bytearray(log_of(path).read_bytes())
    log[end_of(frames_committed(path) // 2) + 99] ^= 4
    path.with_name(path.name + "-shm").unlink()
    log_of(path).write_bytes(log)
    ledger = await open_ledger(path)
    assert "cut short" in ledger.went_back
    assert (await content(ledger)).bodies.items() < whole.bodies.items()
    await ledger.close()


@pytest.mark.parametrize("spoilt", [range(16, 24), range(24, 32), range(4096)])
@pytest.mark.parametrize("indexed", [True, False])
async def test_a_log_with_a_bad_header_which_is_empty_to_sqlite_is_known_by_its_frames(
    killed: tuple[Path, Content], spoilt: range, indexed: bool
) -> None:
    path, whole = killed
    log = bytearray(log_of(path).read_bytes())
    for at in spoilt:
        log[at] = log[at] ^ 4 if len(spoilt) == 8 else 0
    log_of(path).write_bytes(log)
    if not indexed:
        path.with_name(path.name + "-shm").unlink()
    ledger = await open_ledger(path)
    assert "cut short" in ledger.went_back
    assert (await content(ledger)).bodies.items() < whole.bodies.items()
    await ledger.close()


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_read_that_was_not_written(
    killed: tuple[Path, Content], seed: int
) -> None:
    """Whatever is hit: a row is as it was, or set aside, or the whole file is, or its end is known lost."""
    path, whole = killed
    random = Random(seed)
    spoil = random.choice([path, log_of(path)])
    body = bytearray(spoil.read_bytes())
    at = random.randrange(len(body))
    if seed % 2:
        body[at] ^= 1 << random.randrange(8)
    else:
        del body[at:]
    spoil.write_bytes(body)
    try:
        ledger = await open_ledger(path)
    except LedgerCorruptError:
        return
    try:
        found = await content(ledger)
        await commit(ledger, COMMITS)
    except LedgerStorageError:
        assert ledger.damaged.is_set()
        return
    finally:
        await ledger.close()
    assert {(seq, body) for seq, body in found.bodies.items() if body} <= set(whole.bodies.items())
    assert set(found.staged.values()) <= set(whole.staged.values())
    if spoil != path and found != whole:
        assert ledger.went_back


@pytest.mark.parametrize(
    ("at", "bit"),
    [(18, 2), (19, 3), (47, 0), (60, 7), (63, 0), (63, 1), (63, 2), (68, 0), (71, 7)],
)
async def test_a_flipped_bit_in_the_header_is_damage_and_makes_it_nobody_elses(
    tmp_path: Path, at: int, bit: int
) -> None:
    """Format versions, schema format, `user_version`, `application_id`: else the agent would end at each start."""
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    spoilt = bytearray(path.read_bytes())
    spoilt[at] ^= 1 << bit
    path.write_bytes(spoilt)
    with pytest.raises(LedgerCorruptError):
        await open_ledger(path)


def older_tables(path: Path, version: int) -> None:
    """Have a ledger's tables be of schema 2, and its header say another: files of two moments."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            f"DROP TABLE commands; DROP TABLE chains; DROP TABLE dictionaries;"
            f" PRAGMA user_version = {version}"
        )


async def test_older_tables_under_a_newer_header_are_brought_up_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    epoch = ledger.epoch
    for number in range(3):
        await commit(ledger, number)
    kept = await content(ledger)
    await ledger.close()
    older_tables(path, SCHEMA_VERSION)
    again = await open_ledger(path)
    assert again.epoch == epoch
    assert await content(again) == kept
    await again.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM commands").fetchall() == [(0,)]
        assert db.execute("PRAGMA user_version").fetchall() == [(SCHEMA_VERSION,)]


async def test_a_header_of_a_schema_that_nobody_knows_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    older_tables(path, SCHEMA_VERSION + 5)
    before = path.read_bytes()
    with pytest.raises(LedgerNewerError, match="install the backhaul that wrote it"):
        await open_ledger(path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))


async def test_older_tables_under_a_newer_header_that_are_not_whole_are_damage(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    await ledger.close()
    older_tables(path, SCHEMA_VERSION)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX messages_class")
    with pytest.raises(LedgerCorruptError):
        await open_ledger(path)


async def test_a_flipped_bit_in_the_header_makes_no_ledger_of_another_vehicle_ours(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 7")
    with pytest.raises(LedgerForeignError, match="belongs to device 'VID-001'"):
        await open_ledger(path, device="VID-002")


@pytest.mark.parametrize(
    ("name", "written", "spoilt"),
    [
        ("meta", b"(name", b"(naie"),
        ("messages", b"body BLOB", b"b\xefdy BLOB"),
        ("steps", b"WITHOUT ROWID", b"WITHOUT R\xcfWID"),
        ("messages_out", b"length(OLD.body)", b"lgngth(OLD.body)"),
    ],
)
async def test_tables_that_are_not_what_they_were_are_damage(
    tmp_path: Path, name: str, written: bytes, spoilt: bytes
) -> None:
    """Else the agent would end at each start, or could write nothing, or forget nothing, as the last says."""
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    with closing(sqlite3.connect(path)) as db:
        [(sql,)] = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
        assert written in sql.encode()
        db.execute("PRAGMA writable_schema = 1")
        db.execute(
            "UPDATE sqlite_master SET sql = CAST(? AS TEXT) WHERE name = ?",
            (sql.encode().replace(written, spoilt), name),
        )
        db.commit()
    with pytest.raises(LedgerCorruptError):
        await open_ledger(path)


async def test_what_an_operator_adds_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE INDEX mine ON messages (subject); ANALYZE")
    await (await open_ledger(path)).close()


def test_other_tables_are_another_version_of_the_schema() -> None:
    """By its tables a ledger is known to be sound: changed under the same number, all would be set aside."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        tables = sorted(sql for (sql,) in db.execute(TABLES))
    told = sha256("\n".join(tables).encode()).hexdigest()
    assert (SCHEMA_VERSION, told[:16]) == (6, "448b507f55da9833")


def test_the_first_ledgers_that_were_set_aside_are_kept_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for number, place in ((1, ""), (2, ".2"), (3, ".3"), (4, ".3")):
        path.write_text(f"ledger {number}")
        log_of(path).write_text(f"log {number}")
        path.with_name("ledger.db-shm").touch()
        assert set_aside(path) == tmp_path / f"ledger.db.damaged{place}"
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "ledger.db.damaged": "ledger 1", "ledger.db.damaged-wal": "log 1",
        "ledger.db.damaged.2": "ledger 2", "ledger.db.damaged.2-wal": "log 2",
        "ledger.db.damaged.3": "ledger 4", "ledger.db.damaged.3-wal": "log 4",
    }  # fmt: skip
    assert [each.name[17:] for each in asides(path)] == ["", ".2", ".3"]


def test_where_the_disk_has_no_room_for_it_a_damaged_ledger_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("ledger")
    usage = shutil.disk_usage(tmp_path)._replace(free=3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert set_aside(path) is None
    assert list(tmp_path.iterdir()) == []
