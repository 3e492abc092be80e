"""A new epoch in the ledger: one transaction, old lanes stay, seqs begin anew."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.ledger import lanes as ledger_lanes
from backhaul_agent.ledger.rows import LaneStep, LedgerChanges
from backhaul_agent.ledger.sequence_offsets import OffsetStep
from backhaul_codec import peek
from tests.agent.ledgers import FailingDisk, open_ledger, opening, outgoing

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger


async def ends(ledger: Ledger) -> dict[tuple[str, int], int]:
    return {(lane.name, lane.epoch): lane.last_seq for lane in ledger.every_lane()}


async def test_an_opening_closes_the_lanes_and_begins_at_seq_1(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    held = ledger.lanes
    await ledger.commit(LedgerChanges([outgoing(), outgoing(), outgoing("live")]))
    await ledger.commit(LedgerChanges([outgoing()], opening=opening()))
    assert ledger.lanes is held, "others hold it"
    wanted = {("live", 42): 1, ("bulk", 42): 2, ("live", 43): 1, ("bulk", 43): 1}
    assert await ends(ledger) == wanted
    await ledger.close()
    again = await open_ledger(path)
    assert (again.epoch, again.fresh) == (43, False)
    assert await ends(again) == wanted
    assert again.closed["bulk", 42].used_seq == 2
    (word,) = await again.read("live", 1, 9)
    assert word.subject == "e.epoch"
    headers = [peek(row.body) for row in await again.read("bulk", 1, 9, epoch=42)]
    headers += [peek(row.body) for row in await again.read("bulk", 1, 9)]
    assert [(each.epoch, each.seq) for each in headers] == [(42, 1), (42, 2), (43, 1)]
    await again.close()


async def test_an_opening_that_fails_changes_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    ledger = await open_ledger(tmp_path / "ledger.db", opener=disk)
    await ledger.commit(LedgerChanges([outgoing()]))
    before = await ends(ledger)
    disk.error = sqlite3.OperationalError("disk I/O error")
    with pytest.raises(LedgerStorageError):
        await ledger.commit(LedgerChanges([outgoing()], opening=opening()))
    disk.error = None
    assert (ledger.epoch, await ends(ledger)) == (42, before)
    await ledger.commit(LedgerChanges([outgoing()], opening=opening(44)))
    assert ledger.epoch == 44
    assert (await ends(ledger))["bulk", 44] == 1
    await ledger.close()


async def test_former_lanes_take_watermarks_and_steps(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    await ledger.commit(LedgerChanges([outgoing(), outgoing()]))
    await ledger.commit(LedgerChanges(opening=opening()))
    step = LaneStep("bulk", "stream", OffsetStep(1, 5), epoch=42)
    await ledger.commit(LedgerChanges(former={("bulk", 42): 2, ("bulk", 7): 9}, steps=[step]))
    await ledger.close()
    again = await open_ledger(path)
    lane = again.closed["bulk", 42]
    assert (lane.watermark, lane.whole, lane.steps.last) == (2, True, 5)
    assert (again.lanes["bulk"].watermark, again.lanes["bulk"].steps.last) == (0, None)
    await again.close()


async def test_the_oldest_epochs_are_dropped_once_the_hub_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_lanes, "EPOCHS_KEPT", 2)
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    for epoch in range(43, 48):
        await ledger.commit(LedgerChanges([outgoing()], opening=opening(epoch)))
        if epoch != 44:
            held = {(lane.name, epoch): lane.last_seq for lane in ledger.lanes.values()}
            await ledger.commit(LedgerChanges(former=held))
    await ledger.commit(LedgerChanges(opening=opening(48)))
    await ledger.close()
    again = await open_ledger(path)
    # 42 had nothing and 43 is held; 44 is as old and is not; the last two before 47 stay anyhow.
    assert again.epochs == {44, 45, 46, 47, 48}
    assert not await again.query("SELECT 1 FROM messages WHERE lane NOT IN (SELECT id FROM lanes)")
    await again.close()
