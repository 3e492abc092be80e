"""Stamps put right before their messages leave: each message once, whatever dies when."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.commit.contents import ConfigWrite, Points
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import ClockConfig, Config, DeviceConfig, FrameConfig
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import HubClock, HubClockState, Quality
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.rows import Outgoing, Pending
from backhaul_agent.ledger.system_events import event
from backhaul_agent.time_sync.correct_stamps import (
    SETTLE_ROWS,
    Correction,
    Corrections,
    StampCorrector,
    clock_body,
    correct,
    settled,
)
from backhaul_agent.time_sync.timekeeper import Timekeeper
from backhaul_codec import Opaque, Point, decode, encode_frame, encode_point
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.wire.placed import Placed
from tests.agent.ledgers import FailingDisk, open_ledger
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow

S = 10**9
NOW = 1_780_000_000 * S
STATE = HubClockState(Quality.SYNCED, 5, 7, "boot-a")
CONFIG = Config(
    device=DeviceConfig(id="VID-001", token="tok"),
    frame=FrameConfig(points_max=3),
    clock=ClockConfig(drift_ppm=0.0),
)
shifts = st.integers(-(2**62), 2**62)


def pending(subject: str, body: bytes) -> Pending:
    return Pending(1, subject, body, 9)


@given(times=st.lists(st.integers(-(2**61), 2**61), min_size=1), shift=shifts)
def test_every_time_of_a_frame_moves_by_the_same_and_nothing_else_changes(
    times: list[int], shift: int
) -> None:
    points = [Point("n", "t", time, float(index)) for index, time in enumerate(times)]
    row = pending("f.n", encode_frame(points, epoch=3, seq=4, clock=2))
    done = correct(row, Correction(shift, Quality.HOLDOVER), STATE)
    assert done.settled.body is not None
    assert done.settled.shift_ns == shift
    assert done.heads == []
    message = decode(done.settled.body, node="n")
    assert (message.epoch, message.seq, message.clock) == (3, 4, 1)
    assert [(point.time, point.value) for point in message.points] == [
        (time + shift, float(index)) for index, time in enumerate(times)
    ]


def test_heads_that_were_made_of_a_message_move_with_it() -> None:
    point = Point("battery", "limit", 100, 80.0, "max", 2, "")
    row = pending("p.battery.limit.max", encode_point(point, epoch=3, seq=4))
    done = correct(row, Correction(50, Quality.SYNCED), STATE)
    moved = Point("battery", "limit", 150, 80.0, "max", 2, "")
    assert done.heads == [(Placed("", moved), 100)]


def test_the_word_about_the_clock_says_what_became_of_it() -> None:
    unset = HubClockState(Quality.UNSET, 0, None, "boot-a")
    row = pending("e.clock", event("clock", clock_body(unset), 100).body)
    done = correct(row, Correction(50, Quality.SYNCED), STATE)
    assert done.settled.body is not None
    (point,) = decode(done.settled.body, node="", type="clock").points
    assert point.time == 150
    assert isinstance(point.value, Opaque)
    assert json.loads(point.value.data) == clock_body(STATE)


@pytest.mark.parametrize(
    ("subject", "body", "correction"),
    [
        ("f.n", encode_frame([Point("n", "t", 1, 1.0)], epoch=1, seq=1), None),
        ("f.n", b"rotten", Correction(5, Quality.SYNCED)),
        (
            "f.",
            encode_frame([Point("n", "t", 1, 1.0)], epoch=1, seq=1),
            Correction(5, Quality.SYNCED),
        ),
        (
            "f.n",
            encode_frame([Point("n", "t", 2**63 - 2, 1.0)], epoch=1, seq=1),
            Correction(5, Quality.SYNCED),
        ),
        ("e.clock", b"rotten", Correction(5, Quality.SYNCED)),
    ],
)
def test_what_cannot_be_put_right_leaves_as_it_stands(
    subject: str, body: bytes, correction: Correction | None
) -> None:
    done = correct(pending(subject, body), correction, STATE)
    assert done.settled.body is None
    assert done.settled.shift_ns == 0
    assert done.heads == []


def test_a_better_estimate_that_comes_meanwhile_changes_the_order_of_no_readings() -> None:
    system = FakeClock(0)
    clock = HubClock(system, CONFIG.clock)
    clock.start("boot-a", [])
    late = ClockSample(
        0, NOW, NOW, 40_000_000
    )  # the answer took its time: it seems to be later than it is
    clock.adopt(late)
    corrections = Corrections(clock)

    def stamp(number: int) -> int:
        body = encode_point(Point("n", "t", number, float(number)), epoch=3, seq=number)
        (done,) = settled([Pending(number, "p.n.t.%", body, 1)], corrections).settled
        assert done.body is not None
        return decode(done.body, node="n", type="t").points[0].time

    first = stamp(1)
    system.advance(1)
    clock.adopt(ClockSample(S, NOW + S, NOW + S, S))
    assert clock.correction_of(1) != corrections.of(1), (
        "the next settling goes by what is known then"
    )
    assert stamp(2) == first + 1


class Agent:
    """A ledger, a writer and a corrector on a clock that starts in 1970; the writer is driven by hand."""

    def __init__(self, ledger: Ledger, system: FakeClock) -> None:
        self.ledger, self.system = ledger, system
        self.clock = HubClock(system, CONFIG.clock)
        self.writer = Writer(ledger, CONFIG, self.clock, on_commit=lambda: None)
        self.corrector = StampCorrector(ledger, self.writer, self.clock)

    @classmethod
    async def start(cls, path: Path, system: FakeClock, disk: FailingDisk, boot: str) -> Agent:
        agent = cls(await open_ledger(path, opener=disk), system)
        agent.clock.start(boot, await agent.ledger.boots())
        await agent.writer.restore()
        return agent

    async def keep(self, content: Points | ConfigWrite) -> None:
        self.writer.submit(QueuedPublish(content, 10, True, lambda *_: None))
        await self.commit()

    async def commit(self) -> None:
        await self.writer._commit(flush=False)

    async def stamp(self, number: int, *, live: bool = False) -> int:
        """Keep a point stamped now; return the true time."""
        point = Point("n", "t", self.clock.now_ns(), float(number))
        quality = self.clock.quality
        await self.keep(Points("n", [point], live, self.clock.mark, quality))
        return NOW + self.system.steady_ns()

    async def settle(self, *, transactions: int | None = None) -> None:
        """Do what `StampCorrector` does, or only its first so many transactions, as before a crash."""
        await self.commit()
        corrections = Corrections(self.clock)
        while transactions is None or transactions > 0:
            rows = await self.ledger.pending(self.clock.marks, SETTLE_ROWS)
            if not rows:
                return
            changes = settled(rows, corrections)
            self.writer._deferred._owed.inbound.append(changes)
            await self.commit()
            self.corrector._count(changes)
            transactions = None if transactions is None else transactions - 1

    def sync(self) -> None:
        steady = self.system.steady_ns()
        self.clock.adopt(ClockSample(steady, NOW + steady, NOW + steady, steady))

    async def rows(self) -> list[LedgerRow]:
        found: list[LedgerRow] = []
        for lane in ("live", "bulk"):
            found += await self.ledger.read(lane, 1, 10_000)
        return found

    async def times(self) -> dict[float, int]:
        """Return the time of each numbered point that is in a message."""
        found: dict[float, int] = {}
        for row in await self.rows():
            if row.subject[0] in "bp":
                for point in decode(row.body, node="n", type="t", key="").points:
                    assert isinstance(point.value, float)
                    assert point.value not in found
                    found[point.value] = point.time
        return found


async def test_a_crash_between_transactions_corrects_each_message_exactly_once(
    tmp_path: Path,
) -> None:
    system, disk, path = FakeClock(0), FailingDisk(), tmp_path / "ledger.db"
    agent = await Agent.start(path, system, disk, "boot-a")
    true = {}
    for number in range(3 * SETTLE_ROWS + 7):
        system.advance(1.5)
        true[float(number)] = await agent.stamp(number, live=number % 2 == 0)
    held = agent.ledger.lanes["live"], agent.ledger.lanes["bulk"]
    assert [lane.ready_seq for lane in held] == [0, 0]
    agent.sync()
    await agent.settle(transactions=1)  # and then the process is killed
    await agent.ledger.close()
    # The same boot, half of it corrected; the anchor is known from the ledger.
    system.wall_ns += 40 * 365 * 86_400 * S
    agent = await Agent.start(path, system, disk, "boot-a")
    assert agent.clock.quality is Quality.SYNCED
    await agent.settle(transactions=1)
    await agent.ledger.close()
    # And once more, in another boot.
    agent = await Agent.start(path, FakeClock(0), disk, "boot-b")
    await agent.settle()
    try:
        assert await agent.times() == true
        assert {row.boot for row in await agent.rows()} == {0}
        assert [lane.ready_seq == lane.last_seq for lane in agent.ledger.lanes.values()] == [
            True,
            True,
        ]
        clocks = [decode(row.body).clock for row in await agent.rows() if row.subject == "b"]
        assert set(clocks) == {0}
    finally:
        await agent.ledger.close()


async def test_staged_points_wait_for_the_time_over_a_restart(tmp_path: Path) -> None:
    system, disk, path = FakeClock(0), FailingDisk(), tmp_path / "ledger.db"
    agent = await Agent.start(path, system, disk, "boot-a")
    true = {1.0: await agent.stamp(1)}
    await agent.ledger.close()
    system.advance(60)
    agent = await Agent.start(path, system, disk, "boot-a")
    true[2.0] = await agent.stamp(2)
    assert agent.writer.buffered_points == 2
    agent.sync()
    await agent.settle()
    try:
        assert agent.writer.buffered_points == 0
        assert await agent.times() == true
    finally:
        await agent.ledger.close()


async def test_points_found_not_to_be_sent_after_stamps_were_put_right_do_not_hold_their_lane(
    tmp_path: Path,
) -> None:
    """Staged without a clock in an epoch that is over; OUT was looked through only after the time was known."""
    system, disk, path = FakeClock(0), FailingDisk(), tmp_path / "ledger.db"
    agent = await Agent.start(path, system, disk, "boot-a")
    true = {1.0: await agent.stamp(1)}
    former = agent.ledger.epoch
    await agent.ledger.close()
    agent = Agent(await open_ledger(path, opener=disk), system)
    keeper = Timekeeper(CONFIG, agent.clock, agent.ledger, agent.writer, UplinkState())
    await keeper.start("boot-a")
    agent.writer.gate.epochs.behind("started without the hub's word")
    await agent.writer.restore()
    agent.sync()
    writing = asyncio.create_task(agent.writer.run())

    async def settle_if_due() -> None:
        keeper._look()
        if keeper.corrector._due.is_set():
            keeper.corrector._due.clear()
            await keeper.corrector._settle()

    try:
        await settle_if_due()
        agent.writer.gate.suspects.clear(former)
        await agent.writer.all_written()
        assert agent.ledger.held_messages == 1
        await settle_if_due()
        assert agent.ledger.held_messages == 0
        assert await agent.times() == true
    finally:
        writing.cancel()
        await asyncio.wait([writing])
        await agent.ledger.close()


async def test_what_an_unsynced_boot_left_goes_as_it_stands_flagged_unset(tmp_path: Path) -> None:
    disk, path = FailingDisk(), tmp_path / "ledger.db"
    agent = await Agent.start(path, FakeClock(0), disk, "boot-a")
    stamp = agent.clock.now_ns()
    for number in range(4):
        await agent.stamp(number)
    await agent.ledger.close()
    agent = await Agent.start(path, FakeClock(0), disk, "boot-b")
    await agent.settle()
    try:
        (first, second) = await agent.rows()
        assert (first.boot, second.boot) == (0, 0)
        for row in (first, second):
            message = decode(row.body, node="n")
            assert message.clock == 2
            assert {point.time for point in message.points} == {stamp}
        assert (agent.corrector.corrected, agent.corrector.given_up) == (0, 2)
        # The new boot's own stamps still wait, behind what has gone.
        await agent.stamp(9, live=True)
        await agent.settle()
        assert agent.ledger.lanes["live"].ready_seq == 0
    finally:
        await agent.ledger.close()


async def test_stamps_given_by_programs_are_not_moved(tmp_path: Path) -> None:
    system, disk = FakeClock(0), FailingDisk()
    agent = await Agent.start(tmp_path / "ledger.db", system, disk, "boot-a")
    given = Point("n", "t", 12345, 1.0)
    await agent.keep(Points("n", [given], clock=2))
    true = await agent.stamp(2)
    agent.sync()
    await agent.writer._commit(flush=True)
    await agent.settle()
    try:
        assert await agent.times() == {1.0: 12345, 2.0: true}
        flags = {
            point.value: message.clock
            for row in await agent.rows()
            for message in [decode(row.body, node="n")]
            for point in message.points
        }
        assert flags == {1.0: 2, 2.0: 0}
    finally:
        await agent.ledger.close()


async def test_config_written_without_a_clock_stands_and_is_put_right(tmp_path: Path) -> None:
    system, disk = FakeClock(0), FailingDisk()
    agent = await Agent.start(tmp_path / "ledger.db", system, disk, "boot-a")
    key = HeadKey("", "battery", "limit", "")
    keeper = agent.writer.keeper

    async def write(value: float) -> tuple[int, int]:
        """Write config; return its stamp and the true time."""
        stamp = keeper.next_stamp([key])
        point = Point("battery", "limit", stamp, value)
        message = Outgoing("live", "p.battery.limit.%", encode_point(point, epoch=0, seq=0))
        await agent.keep(ConfigWrite([message], [Placed("", point)]))
        return stamp, NOW + system.steady_ns()

    _, first = await write(1.0)
    # The hub's word arrives, from a time that is far ahead of what this vehicle takes for now.
    system.advance(100)
    hub_ns = NOW + system.steady_ns() - 5 * S
    from backhaul_agent.ledger.rows import Inward

    theirs = Point("battery", "limit", hub_ns, 2.0, "", 0, "hub")
    agent.writer._deferred._owed.inbound.append(Inward(received=[Placed("", theirs)]))
    await agent.commit()
    stamp, second = await write(3.0)
    assert stamp > hub_ns, "what is written last stands, here and now"
    head = keeper.heads.get(key)
    assert head is not None
    assert head.value == 3.0
    agent.sync()
    await agent.settle()
    try:
        head = keeper.heads.get(key)
        assert head is not None
        assert (head.time, head.value) == (second, 3.0)
        times = [
            decode(row.body).points[0].time
            for row in await agent.rows()
            if row.subject.startswith("p.battery")
        ]
        assert times == [first, second]
    finally:
        await agent.ledger.close()


async def test_a_disk_that_fails_while_stamps_are_put_right_corrects_them_later_once(
    tmp_path: Path,
) -> None:
    system, disk = FakeClock(0), FailingDisk()
    agent = await Agent.start(tmp_path / "ledger.db", system, disk, "boot-a")
    true = {float(number): await agent.stamp(number, live=True) for number in range(5)}
    agent.sync()
    disk.error = sqlite3.OperationalError("disk I/O error")
    await agent.settle(transactions=1)
    disk.error = None
    await agent.commit()  # the writer owes it still
    await agent.settle()
    try:
        assert await agent.times() == true
    finally:
        await agent.ledger.close()


async def test_a_better_estimate_that_comes_while_the_disk_fails_changes_the_order_of_no_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.time_sync.correct_stamps.SETTLE_ROWS", 1)
    system = FakeClock(0)
    agent = await Agent.start(tmp_path / "ledger.db", system, FailingDisk(), "boot-a")
    for number in (1, 2):
        await agent.stamp(number, live=True)
    agent.clock.adopt(ClockSample(0, NOW, NOW, 40_000_000))
    pending, asked = agent.ledger.pending, count()

    async def failing(but_of: Collection[int], rows_max: int) -> list[Pending]:
        if next(asked) == 1:
            system.advance(1)
            agent.clock.adopt(ClockSample(S, NOW + S, NOW + S, S))
            cause = sqlite3.OperationalError("disk I/O error")
            raise LedgerStorageError(agent.ledger.path, "reading", cause)
        return await pending(but_of, rows_max)

    monkeypatch.setattr(agent.ledger, "pending", failing)
    writing = asyncio.create_task(agent.writer.run())
    try:
        with pytest.raises(LedgerStorageError):
            await agent.corrector._settle()
        assert agent.corrector.corrected == 1
        await agent.corrector._settle()
        assert agent.corrector.corrected == 2
        times = await agent.times()
        assert times[1.0] == times[2.0]
    finally:
        writing.cancel()
        await asyncio.wait([writing])
        await agent.ledger.close()


async def test_what_the_disk_kept_from_being_read_says_of_the_clock_what_is_known_once_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await Agent.start(tmp_path / "ledger.db", FakeClock(0), FailingDisk(), "boot-a")
    word = event("clock", clock_body(agent.clock.state()), agent.clock.now_ns())
    await agent.keep(ConfigWrite([word._replace(boot=agent.clock.mark)], []))

    writing = asyncio.create_task(agent.writer.run())

    async def failing(*_: object) -> list[Pending]:
        cause = sqlite3.OperationalError("disk I/O error")
        raise LedgerStorageError(agent.ledger.path, "reading", cause)

    with monkeypatch.context() as disk:
        disk.setattr(agent.ledger, "pending", failing)
        with pytest.raises(LedgerStorageError):
            await agent.corrector._settle()
    agent.sync()
    try:
        await agent.corrector._settle()
        [row] = await agent.rows()
        (point,) = decode(row.body, node="", type="clock").points
        assert isinstance(point.value, Opaque)
        assert json.loads(point.value.data)["quality"] == "synced"
    finally:
        writing.cancel()
        await asyncio.wait([writing])
        await agent.ledger.close()
