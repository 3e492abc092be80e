"""Making room on a real ledger: what goes, what stays, and that every seq is accounted for."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.ledger.age_index import AgeMark, Ages
from backhaul_agent.ledger.eviction_policy import CONFIG, EVENT, STATE, TELEMETRY
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
from backhaul_agent.ledger.system_events import event, receipt
from backhaul_codec import Point, encode_point
from tests.agent.evictions import account_loosely, receipts, room_of, seqs
from tests.agent.ledgers import FailingDisk, open_ledger
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_agent.commit.eviction import Eviction
    from backhaul_agent.ledger.ledger import Ledger

MIB = 1 << 20
SUBJECTS: dict[int, str] = {
    TELEMETRY: "f.n",
    STATE: "p.n.t.%",
    CONFIG: "p.a.b.t.%",
    EVENT: "e.crash",
}
REASON = "evicted: ledger full"


def message(value_class: int, size: int = 900, lanes: Lanes | None = None) -> Outgoing:
    body = encode_point(Point("n", "t", 1, b"x" * size), epoch=0, seq=0)
    made = Outgoing("live" if value_class else "bulk", SUBJECTS[value_class], body)
    return lanes.place(made) if lanes else made


async def put(
    ledger: Ledger, room: Eviction, value_class: int, count: int, size: int = 900
) -> None:
    """Commit messages ten at a time, and make room after each commit as the writer does."""
    for _ in range(count // 10):
        await ledger.commit(LedgerChanges([message(value_class, size) for _ in range(10)]))
        await room.make(value_class)


async def left(ledger: Ledger) -> dict[int, int]:
    rows = await ledger.query("SELECT value_class, count(*) FROM messages GROUP BY 1")
    return {int(value_class): int(count) for value_class, count in rows}


async def account(ledger: Ledger, watermarks: dict[str, int]) -> None:
    """Every seq given out is held, was confirmed, or is named in exactly one receipt."""
    told: dict[str, set[int]] = {name: set() for name in ledger.lanes}
    for found in await receipts(ledger):
        assert found["epoch"] == ledger.epoch
        span = set(range(found["lo"], found["hi"] + 1))
        assert not told[found["lane"]] & span
        told[found["lane"]] |= span
    for name, lane in ledger.lanes.items():
        every = set(range(1, lane.next_seq))
        held = await seqs(ledger, name)
        gone = told[name]
        confirmed = set(range(1, watermarks.get(name, 0) + 1))
        assert every == held | gone | confirmed
        assert not held & gone
        for lo in range(1, lane.next_seq, 4096):
            part = set(range(lo, min(lo + 4096, lane.next_seq)))
            assert await ledger.explained(ledger.lanes[name], lo, lo + 4095) == gone & part


async def test_the_oldest_telemetry_goes_with_one_receipt_for_each_spell(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        await put(ledger, room, TELEMETRY, 1000)
        assert not ledger.budget.full
        told = await receipts(ledger)
        assert {row["reason"] for row in told} == {REASON}
        assert len(told) < 15
        bulk = await seqs(ledger, "bulk")
        assert bulk == set(range(min(bulk), 1001))
        assert told[0]["lo"] == 1
        assert max(row["hi"] for row in told) == min(bulk) - 1
        await account(ledger, {})
    finally:
        await ledger.close()
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        await account(ledger, {})
    finally:
        await ledger.close()


async def test_the_cheapest_goes_first_and_nothing_for_something_cheaper(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        await put(ledger, room, STATE, 300)
        await put(ledger, room, TELEMETRY, 900)
        assert (await left(ledger))[STATE] == 300
        await put(ledger, room, EVENT, 700)
        kept = await left(ledger)
        assert TELEMETRY not in kept
        assert 0 < kept[STATE] < 300
        assert kept[EVENT] == 700
        await put(ledger, room, EVENT, 700)
        kept = await left(ledger)
        assert STATE not in kept
        assert kept[EVENT] < 1400
        await account(ledger, {})
    finally:
        await ledger.close()


async def test_in_a_nodes_own_lane_the_cheapest_goes_first_too(tmp_path: Path) -> None:
    """There telemetry and what is worth more stand side by side."""
    lanes = Lanes(["n"])
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB, lanes=lanes.names)
    try:
        room = room_of(ledger)
        for _ in range(40):
            changes = LedgerChanges([message(STATE, lanes=lanes), message(EVENT, lanes=lanes)])
            changes.messages += [message(TELEMETRY, lanes=lanes) for _ in range(20)]
            await ledger.commit(changes)
            await room.make(EVENT)
        kept = await left(ledger)
        assert (kept[STATE], kept[EVENT]) == (40, 40)
        assert 0 < kept[TELEMETRY] < 800
        assert {row["lane"] for row in await receipts(ledger)} == {"n_n"}
        assert ledger.lanes["n_n"].last_seq == 40 * 21
        await account(ledger, {})
    finally:
        await ledger.close()


async def test_dearer_things_stay_whatever_comes(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        await put(ledger, room, EVENT, 830)
        while ledger.budget.refusal(TELEMETRY) is None:
            await put(ledger, room, TELEMETRY, 10)
            assert ledger.budget.used < MIB
        assert ledger.budget.refusal(EVENT) is None
        assert (await left(ledger))[EVENT] == 830
        assert await receipts(ledger)
        await account(ledger, {})
    finally:
        await ledger.close()


async def test_confirmed_messages_go_before_any_that_are_not(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        await put(ledger, room, EVENT, 500)
        await ledger.commit(LedgerChanges(watermarks={"live": 500}))
        await put(ledger, room, TELEMETRY, 820)
        assert await receipts(ledger) == []
        assert len(await seqs(ledger, "bulk")) == 820
        await account(ledger, {"live": 500})
    finally:
        await ledger.close()


async def test_a_ledger_that_refuses_gives_nothing_up(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB, when_full="refuse")
    try:
        room = room_of(ledger)
        await put(ledger, room, TELEMETRY, 1000)
        assert ledger.budget.full
        assert ledger.budget.refusal(EVENT) is not None
        assert await left(ledger) == {TELEMETRY: 1000}
    finally:
        await ledger.close()


async def test_receipts_are_never_given_up(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        padding = "x" * 1000
        notes = [receipt("bulk", 42, n, n, padding, 0) for n in range(1, 700)]
        await ledger.commit(LedgerChanges(notes))
        await room.make(EVENT)
        assert await left(ledger) == {4: 699}
        assert ledger.budget.refusal(EVENT) is not None
    finally:
        await ledger.close()


@pytest.mark.parametrize("at", ["BEGIN", "COMMIT"])
async def test_an_eviction_and_its_receipt_are_one(tmp_path: Path, at: str) -> None:
    disk = FailingDisk()
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB, opener=disk)
    try:
        room = room_of(ledger)
        await ledger.commit(LedgerChanges([message(TELEMETRY) for _ in range(1000)]))
        disk.at, disk.error = at, sqlite3.OperationalError("disk I/O error")
        with pytest.raises(LedgerStorageError):
            await room.make(TELEMETRY)
        disk.error = None
        assert await left(ledger) == {TELEMETRY: 1000}
        await room.make(TELEMETRY)
        assert len(await receipts(ledger)) == 1
        await account(ledger, {})
    finally:
        await ledger.close()


async def test_lanes_of_former_epochs_go_too(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    await ledger.commit(LedgerChanges([message(TELEMETRY) for _ in range(100)]))
    await ledger._db.execute("UPDATE meta SET value = 43 WHERE name = 'epoch'")
    await ledger.close()
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        await put(ledger, room, TELEMETRY, 1000)
        (first, *_) = await receipts(ledger)
        assert (first["lane"], first["epoch"], first["lo"]) == ("bulk", 42, 1)
        assert {row["epoch"] for row in await receipts(ledger)} == {42, 43}
    finally:
        await ledger.close()


async def test_what_is_too_old_goes_whatever_it_is_worth(tmp_path: Path) -> None:
    clock = FakeClock()
    ledger = await open_ledger(tmp_path / "l.db")
    try:
        room = room_of(ledger, clock, age_s_max=64.0)
        for value_class in (TELEMETRY, EVENT, STATE):
            await put(ledger, room, value_class, 10)
            await room.upkeep()
            clock.advance(1.5)
        await ledger.commit(LedgerChanges(watermarks={"live": 4}))
        assert not await room.upkeep()
        clock.advance(60.0)
        assert await room.upkeep()
        assert await left(ledger) == {STATE: 10, EVENT: 10, 4: 1}
        clock.advance(60.0)
        assert await room.upkeep()
        assert await left(ledger) == {4: 2}
        assert [(row["lane"], row["lo"], row["hi"]) for row in await receipts(ledger)] == [
            ("bulk", 1, 10), ("live", 5, 20),
        ]  # fmt: skip
        assert {row["reason"] for row in await receipts(ledger)} == {"evicted: older than 64 s"}
        await account(ledger, {"live": 4})
        again = Ages(64.0, await ledger.marks())
        assert again.marks[-len(room.ages.marks) :] == room.ages.marks
        assert len(again.marks) < 10
    finally:
        await ledger.close()


async def test_a_mark_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    """No checksum covers it; the agent would end at each start."""
    ledger = await open_ledger(tmp_path / "l.db")
    try:
        marks = [AgeMark(1, {1: 5}), AgeMark(2, {1: 7}), AgeMark(3, {1: 9})]
        for mark in marks:
            await ledger.write_mark(mark, 0)
        await ledger._db.execute("UPDATE ages SET next_seqs = '{\"1\": s}' WHERE time_ns = 2")
        assert await ledger.marks() == [marks[0], marks[2]]
    finally:
        await ledger.close()


async def test_an_unset_clock_makes_nothing_old(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.settled = False  # type: ignore[attr-defined]
    ledger = await open_ledger(tmp_path / "l.db")
    try:
        room = room_of(ledger, clock, age_s_max=60.0)
        await put(ledger, room, TELEMETRY, 10)
        await room.upkeep()
        clock.advance(50 * 365 * 86_400.0)
        await room.upkeep()
        assert await left(ledger) == {TELEMETRY: 10}
        assert await ledger.marks() == []
    finally:
        await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_every_seq_is_accounted_for_whatever_comes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    watermarks = {"live": 0, "bulk": 0}
    ledger = await open_ledger(tmp_path / "l.db", bytes_max=MIB)
    try:
        room = room_of(ledger)
        for _ in range(120):
            value_class = chance.choice([TELEMETRY, TELEMETRY, STATE, STATE, CONFIG, EVENT])
            if ledger.budget.refusal(value_class) is None:
                batch = [
                    message(value_class, chance.choice([10, 100, 2000, 6000]))
                    for _ in range(chance.randint(1, 25))
                ]
                if chance.random() < 0.3:
                    batch.append(event("mark", {}, 0))
                await ledger.commit(LedgerChanges(batch))
                await room.make(value_class)
            if chance.random() < 0.03:
                lane = chance.choice(["live", "bulk"])
                last = ledger.lanes[lane].last_seq
                watermarks[lane] = chance.randint(watermarks[lane], last)
                await ledger.commit(LedgerChanges(watermarks={lane: watermarks[lane]}))
        assert room.evicted
        held = await account_loosely(ledger, watermarks)
        assert held
    finally:
        await ledger.close()
