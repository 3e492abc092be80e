"""Stamps put right before their messages leave: each message once, whatever dies when."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.commit.contents import ConfigWrite, Points
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import HubClock, HubClockState, Quality
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.rows import Outgoing, Pending
from backhaul_agent.ledger.system_events import event
from backhaul_agent.time_sync.correct_stamps import (
    Correction,
    Corrections,
    clock_body,
    correct,
    settled,
)
from backhaul_agent.time_sync.timekeeper import Timekeeper
from backhaul_codec import Opaque, Point, decode, encode_frame, encode_point
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.wire.addressed import Addressed
from tests.agent.ledgers import FailingDisk, open_ledger
from tests.agent.unsynced_agent import CONFIG, NOW, Agent, S, pending
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

STATE = HubClockState(Quality.SYNCED, 5, 7, "boot-a")
shifts = st.integers(-(2**62), 2**62)


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
    assert done.heads == [(Addressed("", moved), 100)]


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
        agent.writer.gate.unconfirmed.clear(former)
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
        await agent.keep(ConfigWrite([message], [Addressed("", point)]))
        return stamp, NOW + system.steady_ns()

    _, first = await write(1.0)
    # The hub's word arrives, from a time that is far ahead of what this vehicle takes for now.
    system.advance(100)
    hub_ns = NOW + system.steady_ns() - 5 * S
    from backhaul_agent.ledger.rows import Inward

    theirs = Point("battery", "limit", hub_ns, 2.0, "", 0, "hub")
    agent.writer._deferred._owed.inbound.append(Inward(received=[Addressed("", theirs)]))
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
