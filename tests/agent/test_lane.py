"""A lane against a leaf that is scripted: appends held up, answers lost, streams gone.

What a real server does only once in a long while, it does here on command.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from backhaul_agent.ledger.rows import CorrectedMessage, Inward
from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets
from backhaul_agent.uplink.resend import ResendAsk
from backhaul_codec import Point, decode, encode_frame
from backhaul_codec.wire.retime import retime
from tests.agent.lane_rig import Connection, Rig, rig
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest

__all__ = ["rig"]  # a fixture


async def test_appends_that_arrive_after_the_new_tail_was_read_are_not_doubled(rig: Rig) -> None:
    """The old connection's last appends come in late: the case expected sequences exist for."""
    await rig.commit(5)
    old, new = Connection(rig.leaf, hold=True), Connection(rig.leaf, hold=True)
    async with rig.connected(old):
        await until(lambda: len(old.held) == 5)
    async with rig.connected(new):
        await until(lambda: len(new.held) == 5)
        await old.release()
        await new.release()
        await until(lambda: rig.leaf.refused and rig.lane.appender.done)
    assert rig.leaf.seqs == [1, 2, 3, 4, 5]


async def test_what_was_read_ahead_while_it_waited_for_the_time_leaves_as_it_was_put_right(
    rig: Rig,
) -> None:
    await rig.commit(1)
    await rig.commit(2, boot=1)
    async with rig.connected(Connection(rig.leaf)):
        await until(lambda: rig.leaf.stored)  # and with it two more were read, which may not leave
        waiting = await rig.ledger.pending([], 10)
        settled = [CorrectedMessage(row.id, retime(row.body, 1000), 1000) for row in waiting]
        await rig.writer.apply(Inward(settled=settled))
        await rig.drained()
    assert [decode(data, node="n").points[0].time for data in rig.leaf.stored] == [0, 1000, 1001]


async def test_only_the_first_of_the_late_appends_arrives(rig: Rig) -> None:
    await rig.commit(5)
    old, new = Connection(rig.leaf, hold=True), Connection(rig.leaf, hold=True)
    async with rig.connected(old):
        await until(lambda: len(old.held) == 5)
    async with rig.connected(new):
        await until(lambda: len(new.held) == 5)
        del old.held[2:]
        await old.release()
        await new.release()
        await rig.drained()
    assert rig.leaf.refused == 2
    assert rig.leaf.seqs == [1, 2, 3, 4, 5]


async def test_lost_answers_are_found_in_the_tail(rig: Rig) -> None:
    await rig.commit(3)
    deaf = Connection(rig.leaf, lose_answers=True)
    async with rig.connected(deaf):
        await until(lambda: len(rig.leaf.stored) == 3)
        assert rig.lane.appender.appended == 0
        rig.clock.advance(6)
        await rig.commit(1)  # wakes the lane, which finds its answers overdue
        await until(lambda: len(rig.leaf.stored) == 4)
    assert rig.leaf.seqs == [1, 2, 3, 4]


async def test_a_leaf_that_answers_nothing_is_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.uplink.lane.RETRY_S_MIN", 0.001)
    await rig.commit(2)
    rig.leaf.down = True
    async with rig.connected(Connection(rig.leaf)):
        await until(lambda: rig.lane.last_error)
        rig.leaf.down = False
        await rig.drained()
    assert rig.leaf.seqs == [1, 2]


async def test_a_leaf_without_room_is_asked_less_and_less_often_and_that_is_said_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(pause_s: float) -> None:
        if pause_s < 1000:
            await sleep(pause_s)
            return
        pauses.append(pause_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr("backhaul_agent.uplink.lane.RETRY_S_MIN", 1000)
    monkeypatch.setattr("backhaul_agent.uplink.lane.RETRY_S_MAX", 5000)
    await rig.commit(1)
    rig.leaf.no_room = 8
    with structlog.testing.capture_logs() as logs:
        async with rig.connected(Connection(rig.leaf)):
            await rig.drained()
            await until(lambda: not rig.lane.last_error)
    said = [each["event"] for each in logs if each["event"] in ("lane_stopped", "lane_runs_again")]
    assert said == ["lane_stopped", "lane_runs_again"]
    assert pauses == [1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000]
    assert rig.leaf.seqs == [1]


async def test_a_new_ledger_goes_on_in_the_stream_of_the_one_before(rig: Rig) -> None:
    await rig.commit(3)
    rig.leaf.stored = [encode_frame([Point("n", "t", 1, 1.0)], epoch=41, seq=9)]
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [9, 1, 2, 3]


async def test_a_store_rolled_back_to_before_the_watermark_reuses_no_sequence(rig: Rig) -> None:
    """The hub's source has passed sequence 4 and takes whatever comes under 3 or 4 for old."""
    await rig.commit(4)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    await rig.confirm(3)
    rig.leaf.stored = rig.leaf.stored[:2]
    await rig.commit(2)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [4, 5, 6]
    assert rig.leaf.last_seq >= 6


async def test_a_stream_that_was_made_anew_starts_at_its_start(rig: Rig) -> None:
    await rig.commit(4)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    await rig.confirm(3)
    rig.leaf.stored.clear()
    rig.leaf.created = "2026-01-02T00:00:00Z"
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [4]
    assert rig.leaf.last_seq == 1
    assert rig.ledger.lanes["bulk"].steps == SequenceOffsets(
        "2026-01-02T00:00:00Z", [OffsetStep(3, -3)]
    )


async def test_a_rolled_back_store_that_held_foreign_messages_reuses_no_sequence(rig: Rig) -> None:
    """Seq 3 stood under sequence 4, so nothing after seq 3 may come under a lesser one than 5."""
    await rig.commit(2)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.leaf.stored.append(b"a local program's")
        await rig.commit(1)
        await rig.drained()
    assert rig.leaf.seqs == [1, 2, 3]
    assert rig.ledger.lanes["bulk"].steps.last == 1
    rig.leaf.stored = rig.leaf.stored[:1]
    await rig.commit(1)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [1, 2, 3, 4]
    assert rig.leaf.last_seq - 4 >= 1


async def test_rows_damaged_while_waiting_leave_a_receipt(rig: Rig) -> None:
    await rig.commit(6)
    await rig.ledger._db.execute("UPDATE messages SET body = 'x' WHERE seq IN (1, 3)")
    await rig.ledger._db.execute("UPDATE messages SET subject = 'p.x.y.z' WHERE seq = 5")
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [2, 4, 6]
    assert await rig.ledger.explained(rig.ledger.lanes["bulk"], 1, 6) == {1, 3, 5}
    assert rig.ledger.lanes["live"].last_seq == 3
    again = Connection(rig.leaf)
    rig.leaf.stored.clear()
    async with rig.connected(again):
        await rig.drained()
    assert rig.leaf.seqs == [2, 4, 6]
    assert rig.ledger.lanes["live"].last_seq == 3, "a gap is explained once"


async def test_a_quarantined_row_makes_the_next_look_neither_purge_nor_repeat(rig: Rig) -> None:
    """The sequences fall back by one there, which is no sign of a store that went back."""
    await rig.commit(6)
    await rig.ledger._db.execute("UPDATE messages SET body = 'x' WHERE seq = 3")
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    await until(lambda: rig.ledger.lanes["bulk"].steps.last == -1)
    await rig.commit(1)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.seqs == [1, 2, 4, 5, 6, 7]
    assert rig.leaf.purges == 0


async def test_rows_that_vanish_after_they_were_sent_free_no_sequence(rig: Rig) -> None:
    """The hub may have passed 2 and 3: what follows must not come under these."""
    await rig.commit(5)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    rig.leaf.stored = rig.leaf.stored[:1]
    await rig.ledger._db.execute("DELETE FROM messages WHERE seq IN (2, 3)")
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert rig.leaf.purges == 1
    assert rig.leaf.seqs == [1, 4, 5]
    assert rig.leaf.purged >= 5, "beyond every sequence there was"


async def test_what_the_hub_has_passed_is_heeded_though_the_lane_looks_for_its_place(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody says it again, and what comes under 50 or less the hub takes for old."""
    await rig.commit(2)
    sizes = rig.ledger.sizes

    async def passed_meanwhile(*args: Any) -> list[tuple[int, int]]:
        monkeypatch.setattr(rig.ledger, "sizes", sizes)
        rig.lane.on_passed(50)
        rig.lane.on_passed(9)
        return await sizes(*args)

    monkeypatch.setattr(rig.ledger, "sizes", passed_meanwhile)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
    assert (rig.leaf.purged, rig.leaf.seqs) == (50, [1, 2])


async def test_what_was_on_its_way_in_a_stream_that_is_gone_is_sent_when_asked_for_again(
    rig: Rig,
) -> None:
    """The hub had confirmed it and lost it, so that it does not leave in its turn either."""
    await rig.commit(4)
    await rig.confirm(4)
    async with rig.connected(Connection(rig.leaf)):
        rig.lane.on_ask(ResendAsk(42, ((1, 2),), "first"))
        await until(lambda: rig.leaf.seqs == [1, 2])
    rig.leaf.stored.clear()
    rig.leaf.created = "2026-01-02T00:00:00Z"
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ResendAsk(42, ((1, 2),), "second"))
        await until(lambda: rig.lane.holes.answered == 2 and not rig.lane.resends.pending)
        assert rig.lane.resends.messages == 4
        await until(lambda: rig.leaf.seqs == [1, 2])
