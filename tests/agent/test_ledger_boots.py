"""Messages whose stamps wait for the time: marked, kept back, settled once."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.hub_time.hub_clock import Boot
from backhaul_agent.ledger.rows import CorrectedMessage, LedgerChanges, Outgoing, Staged
from backhaul_codec import Point, decode, encode_point
from tests.agent.ledgers import FailingDisk, open_ledger

if TYPE_CHECKING:
    from pathlib import Path


def message(time: int, boot: int = 0, lane: str = "live") -> Outgoing:
    body = encode_point(Point(node="n", type="t", time=time, value=1.0), epoch=0, seq=0)
    return Outgoing(lane, "p.n.t.%", body, boot=boot)


def body_at(time: int, seq: int) -> bytes:
    return encode_point(Point(node="n", type="t", time=time, value=1.0), epoch=42, seq=seq)


async def test_marks_outlive_a_restart_and_are_listed_by_boot(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    staged = [Staged("n", 1, b"one", boot=2, clock=2)]
    await ledger.commit(LedgerChanges([message(5, 2), message(6, 1), message(7)], staged))
    await ledger.commit(LedgerChanges(boots=[Boot(1, "a", 10), Boot(2, "b", 20, 30, 40, 50)]))
    await ledger.close()
    ledger = await open_ledger(path)
    try:
        assert [(row.seq, row.boot) for row in await ledger.read("live", 1, 9)] == [
            (1, 2),
            (2, 1),
            (3, 0),
        ]
        assert [(row.subject, row.boot) for row in await ledger.pending((), 9)] == [
            ("p.n.t.%", 2),
            ("p.n.t.%", 1),
        ]
        assert [row.boot for row in await ledger.pending([2], 9)] == [1]
        assert len(await ledger.pending((), 1)) == 1
        assert await ledger.boots() == [Boot(1, "a", 10), Boot(2, "b", 20, 30, 40, 50)]
        assert [(row.boot, row.clock, row.intact) for row in await ledger.staged()] == [
            (2, 2, True)
        ]
    finally:
        await ledger.close()


async def test_a_settled_message_is_never_changed_again(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        await ledger.commit(LedgerChanges([message(5, 1), message(6, 1)]))
        first, second = await ledger.pending((), 9)
        await ledger.commit(
            LedgerChanges(
                settled=[
                    CorrectedMessage(first.id, body_at(105, 1)),
                    CorrectedMessage(second.id, None),
                ]
            )
        )
        # What a crash between reading and writing could lead to: the same row, once more.
        again = [
            CorrectedMessage(first.id, body_at(999, 1)),
            CorrectedMessage(second.id, body_at(999, 2)),
        ]
        await ledger.commit(LedgerChanges(settled=again))
        rows = await ledger.read("live", 1, 9)
        assert [row.boot for row in rows] == [0, 0]
        assert [decode(row.body).points[0].time for row in rows] == [105, 6]
        assert await ledger.pending((), 9) == []
    finally:
        await ledger.close()


async def test_a_disk_that_fails_settles_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    ledger = await open_ledger(tmp_path / "ledger.db", opener=disk)
    try:
        await ledger.commit(LedgerChanges([message(5, 1)]))
        (row,) = await ledger.pending((), 9)
        disk.error = sqlite3.OperationalError("disk I/O error")
        with pytest.raises(LedgerStorageError):
            await ledger.commit(LedgerChanges(settled=[CorrectedMessage(row.id, body_at(105, 1))]))
        disk.error = None
        assert await ledger.pending((), 9) == [row]
    finally:
        await ledger.close()


async def test_a_lane_is_held_from_its_first_marked_message_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)

    def ready() -> tuple[int, int]:
        return ledger.lanes["live"].ready_seq, ledger.lanes["bulk"].ready_seq

    try:
        assert ready() == (0, 0)
        await ledger.commit(LedgerChanges([message(1), message(2, 1), message(3), message(4, 1)]))
        assert ready() == (1, 0)
        await ledger.commit(LedgerChanges([message(5), Outgoing("bulk", "f.n", message(1).body)]))
        assert ready() == (1, 1)
        await ledger.close()
        ledger = await open_ledger(path)
        assert ready() == (1, 1)
        second, fourth = await ledger.pending((), 9)
        await ledger.commit(LedgerChanges(settled=[CorrectedMessage(second.id, None)]))
        assert ready() == (3, 1)
        await ledger.commit(LedgerChanges(evict=[fourth.id]))
        assert ready() == (5, 1), "what was given up holds nobody"
    finally:
        await ledger.close()


async def test_the_times_beside_a_message_move_with_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    await ledger.commit(
        LedgerChanges(
            [message(5, 1)._replace(times=(5, 9)), message(6, 1)], boots=[Boot(1, "a", 0)]
        )
    )
    rows = await ledger.pending((), 9)
    await ledger.commit(
        LedgerChanges(settled=[CorrectedMessage(row.id, None, 100) for row in rows])
    )
    await ledger.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT t_lo, t_hi FROM messages ORDER BY id").fetchall() == [
            (105, 109),
            (None, None),
        ]
    db.close()


async def test_starts_that_nothing_waits_for_are_forgotten(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        await ledger.commit(
            LedgerChanges([message(5, 2)], [Staged("n", 1, b"x", boot=3)], boots=[Boot(1, "1", 0)])
        )
        for number in range(2, 100):
            await ledger.commit(LedgerChanges(boots=[Boot(number, str(number), 0)]))
        numbers = [boot.number for boot in await ledger.boots()]
        assert numbers == [2, 3, *range(36, 100)]
    finally:
        await ledger.close()
