"""Rows of a ledger with what is never written there, where no checksum says so: damage, or done without.

NOT covered: what might have been written there, as the subject of another single point.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.framer import pack
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.commit.unconfirmed_rows import UnconfirmedRows
from backhaul_agent.errors import LedgerCorruptError
from backhaul_agent.hub_time.hub_clock import Boot
from backhaul_agent.ledger.rows import CorrectedMessage, LedgerChanges, Quarantine, Staged
from backhaul_codec import Point, encode_frame
from tests.agent.ledgers import (
    BLOB_OF_6,
    BYTES,
    FLOAT,
    NOTHING,
    commit,
    open_ledger,
    opening,
    spoil,
)

if TYPE_CHECKING:
    from pathlib import Path


def rewrite(path: Path, sql: str) -> None:
    """Have SQLite write what the agent never would."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(sql)


@pytest.fixture
async def empty(tmp_path: Path) -> Path:
    """A ledger without messages, closed."""
    path = tmp_path / "ledger.db"
    await (await open_ledger(path)).close()
    return path


@pytest.fixture
async def filled(empty: Path) -> Path:
    """A ledger of three messages, the first of them set aside, closed."""
    ledger = await open_ledger(empty)
    for number in (1, 2, 3):
        await commit(ledger, number)
    await ledger.commit(LedgerChanges(quarantine=[Quarantine("bulk", 1, "why")]))
    await ledger.close()
    return empty


async def test_a_lane_that_its_row_says_another_name_of_is_damage(empty: Path) -> None:
    """The index has it under its own, so that none is made anew."""
    spoil(empty, "lanes", b"bulk", 2, ord("n"))
    with pytest.raises(LedgerCorruptError, match="no lane bulk"):
        await open_ledger(empty)


@pytest.mark.parametrize("kind", [NOTHING, BYTES])
@pytest.mark.parametrize("before", [5, 2, 1], ids=["points", "boot", "clock"])
async def test_a_staged_row_with_a_column_of_another_kind_loses_no_points(
    tmp_path: Path, before: int, kind: int
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    points = [Point("gps", "lat", 1, 2.0)]
    await ledger.commit(LedgerChanges(staged=[Staged("gps", 1, pack(points))]))
    await ledger.close()
    spoil(path, "staged", b"gps", -before, kind)
    ledger = await open_ledger(path)
    [row] = await ledger.staged()
    await ledger.close()
    suspects = UnconfirmedRows()
    assert suspects.restore([row], 42, {}, {}) == []
    suspects.clear(42)
    assert suspects.take_cleared() == [(row, points)]
    assert (type(row.points), type(row.boot)) == (int, int)
    assert encode_frame(points, epoch=1, seq=1, clock=row.clock)


@pytest.mark.parametrize(
    ("before", "kind", "expected"),
    [
        (5, BLOB_OF_6, Boot(2, "boot-2", 10**18, 10**18)),
        (4, FLOAT, Boot(2, "", 0)),
        (3, FLOAT, Boot(2, "", 0)),
        (1, NOTHING, Boot(2, "", 0)),
        (1, BYTES, Boot(2, "", 0)),
    ],
)
async def test_a_start_of_the_machine_that_cannot_be_read_keeps_its_number(
    tmp_path: Path, before: int, kind: int, expected: Boot
) -> None:
    """Another start with its number would move the stamps that wait for this one."""
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    known = Boot(1, "boot-1", 10**18, 10**18)
    await ledger.commit(LedgerChanges(boots=[known, Boot(2, "boot-2", 10**18, 10**18)]))
    await ledger.close()
    spoil(path, "boots", b"boot-2", -before, kind)
    ledger = await open_ledger(path)
    assert await ledger.boots() == [known, expected]
    await ledger.close()


@pytest.mark.parametrize("spoilt", [NOTHING, BYTES])
@pytest.mark.parametrize(
    ("column", "before"), [("next_seq", 5), ("watermark", 4), ("confirmed", 3), ("used_seq", 1)]
)
async def test_a_lane_that_does_not_say_how_far_it_is(
    tmp_path: Path, column: str, before: int, spoilt: int
) -> None:
    """The hub tells its watermark again; nobody tells which seqs and sequences were given out."""
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    lane = ledger.lanes["bulk"]
    await ledger.close()
    spoil(path, "lanes", b"bulk", -before, spoilt)
    if column in ("next_seq", "used_seq"):
        with pytest.raises(LedgerCorruptError, match="how far a lane is"):
            await open_ledger(path)
        return
    ledger = await open_ledger(path)
    assert ledger.lanes["bulk"] == lane
    await ledger.close()


async def test_all_of_a_former_epoch_counts_as_sent_whatever_its_row_says(filled: Path) -> None:
    """Nobody notes any more that it was: the lane would wait for that, and have it committed, for ever."""
    ledger = await open_ledger(filled)
    await ledger.commit(LedgerChanges(opening=opening()))
    await ledger.close()
    rewrite(filled, "UPDATE lanes SET used_seq = 1")
    ledger = await open_ledger(filled)
    assert ledger.closed["bulk", 42].used_seq == 3
    await ledger.close()


ROWS = """
INSERT INTO steps VALUES (1, 0, 1);
INSERT INTO evicted VALUES (1, 4, 5, 'ledger full');
INSERT INTO commands (id, name, params, sent_ns, deadline_ns) VALUES ('c1', 'go', x'7b7d', 1, 2);
"""


@pytest.mark.parametrize(
    "column",
    [
        "lanes.name", "lanes.stream_created", "steps.stream_offset", "classes.bytes", "evicted.hi",
        "evicted.reason", "commands.id", "commands.deadline_ns", "commands.runs",
    ],
)  # fmt: skip
async def test_what_is_never_written_into_a_column_is_damage(empty: Path, column: str) -> None:
    """Bytes for a number or a text: else the agent would end at each start, or as soon as it reads them."""
    table, _, name = column.partition(".")
    rewrite(empty, ROWS)
    await (await open_ledger(empty)).close()
    rewrite(empty, f"UPDATE {table} SET {name} = CAST({name} AS BLOB)")
    with pytest.raises(LedgerCorruptError, match=column):
        await open_ledger(empty)


async def test_a_command_whose_row_says_other_than_its_index_is_damage(empty: Path) -> None:
    """The index has its id as it was; what is read later is the row."""
    rewrite(empty, ROWS)
    spoil(empty, "commands", b"c1go", -12, 16)
    with pytest.raises(LedgerCorruptError, match=r"commands\.id"):
        await open_ledger(empty)


async def test_a_class_of_messages_that_does_not_say_what_it_comes_to_is_damage(
    empty: Path,
) -> None:
    spoil(empty, "classes", b"\x04\x00\x08\x08", 3, NOTHING)
    with pytest.raises(LedgerCorruptError, match=r"classes\.bytes"):
        await open_ledger(empty)


async def test_a_class_that_is_damaged_while_the_ledger_is_open_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    rewrite(path, "UPDATE classes SET bytes = x'ff'")
    with pytest.raises(LedgerCorruptError):
        await ledger.measure()
    with pytest.raises(LedgerCorruptError):
        await ledger.make_room()
    await ledger.close()


async def test_a_lane_of_a_former_epoch_with_another_name_is_damage(empty: Path) -> None:
    rewrite(empty, "INSERT INTO lanes (name, epoch) VALUES ('bunk', 7)")
    with pytest.raises(LedgerCorruptError, match="'bunk' is no lane"):
        await open_ledger(empty)


async def test_a_lane_that_its_index_says_another_epoch_of_is_damage(empty: Path) -> None:
    """Else it would be made anew beside itself, and begin again at the first seq."""
    spoil(empty, "sqlite_autoindex_lanes_1", b"bulk", 4, 43)
    with pytest.raises(LedgerCorruptError, match="lane bulk of epoch 42 twice"):
        await open_ledger(empty)


@pytest.mark.parametrize(
    "told",
    [
        "UPDATE lanes SET next_seq = next_seq + (1 << 20)",
        "UPDATE messages SET seq = seq + (1 << 20)",
    ],
    ids=["its row", "an index"],
)
async def test_a_lane_that_is_further_than_anything_of_it_is_damage(
    filled: Path, told: str
) -> None:
    """Else receipts for what is missing would be written until the disk is full."""
    rewrite(filled, told)
    with pytest.raises(LedgerCorruptError, match="ends at seq"):
        await open_ledger(filled)


@pytest.mark.parametrize("seq", ["'q'", "x'17'", "1.5"], ids=["text", "bytes", "float"])
@pytest.mark.parametrize("table", ["messages", "quarantined"])
async def test_a_row_whose_seq_is_none_says_nothing_of_its_lane(
    filled: Path, table: str, seq: str
) -> None:
    rewrite(filled, f"UPDATE {table} SET seq = {seq} WHERE seq = (SELECT min(seq) FROM {table})")
    ledger = await open_ledger(filled)
    assert ledger.lanes["bulk"].last_seq == 3
    await ledger.close()


@pytest.mark.parametrize(
    "why",
    [
        "UPDATE lanes SET watermark = 7, confirmed = 100000",
        "INSERT INTO evicted SELECT id, 2, 100000, 'ledger full' FROM lanes",
        "INSERT INTO quarantined SELECT NULL, name, epoch, 100000, '', NULL, 'why', 1 FROM lanes",
    ],
    ids=["confirmed", "evicted", "quarantined"],
)
async def test_a_lane_whose_last_messages_are_gone_for_a_reason_is_no_damage(
    filled: Path, why: str
) -> None:
    rewrite(filled, f"UPDATE lanes SET next_seq = 100001; {why}")
    ledger = await open_ledger(filled)
    assert ledger.lanes["bulk"].last_seq == 100000
    await ledger.close()


@pytest.mark.parametrize("name", ["hub_ns", "stamp_ns", "hub_ns_told"])
@pytest.mark.parametrize("value", [None, b"17", "17q"])
def test_a_number_of_the_meta_table_that_is_none_counts_as_none(name: str, value: Any) -> None:
    keeper = HeadKeeper("VID-001", lambda: 0)
    keeper.restore([], {name: value})
    assert keeper.hub_ns == 0
    assert set(keeper.told_ns.values()) == {0}


async def test_a_message_without_a_body_waits_for_the_time_no_longer_than_others(
    filled: Path,
) -> None:
    """It is given up with its stamps: else no commit that settles others beside it would succeed."""
    needed, damaged = "body BLOB NOT NULL", "body BLOB"
    for before, after in ((needed, damaged), (damaged, needed)):
        rewrite(
            filled,
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
            f"replace(sql, '{before}', '{after}') WHERE name = 'messages';",
        )
        if after is damaged:
            rewrite(filled, "UPDATE messages SET boot = 7, body = NULL WHERE seq = 3")
    ledger = await open_ledger(filled)
    [row] = await ledger.pending((), 10)
    assert row.body == b""
    await ledger.commit(LedgerChanges(settled=[CorrectedMessage(row.id, None)]))
    assert await ledger.pending((), 10) == []
    [*_, last] = await ledger.read("bulk", 1, 10)
    assert (last.seq, last.body) == (3, b"")
    await ledger.close()
