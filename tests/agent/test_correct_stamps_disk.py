"""Stamps that are put right while the disk fails, or the agent is killed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from itertools import count
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.commit.contents import ConfigWrite
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import Quality
from backhaul_agent.ledger.system_events import event
from backhaul_agent.time_sync.correct_stamps import (
    SETTLE_ROWS,
    clock_body,
)
from backhaul_codec import Opaque, decode
from tests.agent.ledgers import FailingDisk
from tests.agent.unsynced_agent import NOW, Agent, S
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from backhaul_agent.ledger.rows import Pending


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
