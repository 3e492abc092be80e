"""What the hub asks for again: requests, works, pace; and a lane that answers, against a scripted leaf."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.ledger.lanes import CommittedLane as LaneState
from backhaul_agent.uplink.out_stream import OutStream, headers_of
from backhaul_agent.uplink.reconcile import MOVED
from backhaul_agent.uplink.resend import (
    ALLOWED_BYTES_MAX,
    ALLOWED_BYTES_MIN,
    RUN_MESSAGES,
    ResendAsk,
    Resends,
    Work,
    read_ask,
)
from backhaul_agent.uplink.resend_requests import FORGOTTEN, LOST, MISSING, Span, reasons
from backhaul_codec import Point, decode, encode_frame
from tests.agent.lane_rig import Connection, Rig, rig
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["rig"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"epoch": 0, "ranges": [], "id": 1}',
        b'{"epoch": 1, "ranges": [[2, 1]], "id": 1}',
        b'{"epoch": 1, "ranges": [[0, 1]], "id": 1}',
        b'{"epoch": 1, "ranges": [[1]], "id": 1}',
        json.dumps({"epoch": 1, "ranges": [[1, 1]] * 257, "id": 1}).encode(),
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no request to resend"):
        read_ask(data)


def test_a_request_is_read() -> None:
    ask = read_ask(b'{"epoch": 7, "ranges": [[1, 3], [9, 9]], "id": "x"}')
    assert ask == ResendAsk(7, ((1, 3), (9, 9)), "x")
    named = read_ask(b'{"epoch": 7, "ranges": [[1, 3]], "id": "x", "machine": "a1"}')
    assert named == ResendAsk(7, ((1, 3),), "x", "a1")


@given(lo=st.integers(1, 1000), size=st.integers(1, 200), at=st.integers(0, 5))
def test_works_split_into_runs_without_a_gap(lo: int, size: int, at: int) -> None:
    resends = Resends()
    resends.begin([Work(7, lo, lo + size - 1, at)])
    seen: list[int] = []
    while resends.pending:
        run = resends.next_run()
        assert run.hi - run.lo < RUN_MESSAGES
        assert run.stream_seq == (at and at + run.lo - lo)
        upto = run.lo + (run.hi - run.lo) // 2
        seen += range(run.lo, upto + 1)
        resends.took(upto)
    assert seen == list(range(lo, lo + size))


def test_a_newer_request_replaces_the_older_but_no_drain() -> None:
    resends = Resends()
    resends.begin([Work(7, 1, 5)])
    resends.drain(Work(6, 8, 9))
    resends.begin([Work(7, 3, 3)])
    assert resends.next_run() == Work(6, 8, 9)
    resends.took(9)
    assert resends.next_run() == Work(7, 3, 3)
    resends.begin([])
    assert not resends.pending


def test_what_is_on_its_way_is_not_sent_again() -> None:
    resends = Resends()
    resends.sent(Work(7, 10, 19), 10, 100, 42, 0.0)
    ask = ResendAsk(7, ((5, 12), (18, 30)), 1)
    assert resends.not_flying(ask) == [(5, 9), (20, 30)]
    assert resends.not_flying(ResendAsk(8, ((10, 10),), 1)) == [(10, 10)]
    resends.flowed(41, 1.0)
    assert resends.not_flying(ask) == [(5, 9), (20, 30)]
    resends.flowed(42, 1.0)
    assert resends.not_flying(ask) == [(5, 12), (18, 30)]
    resends.sent(Work(7, 10, 19), 10, 100, 50, 0.0)
    resends.lost()
    assert resends.not_flying(ask) == [(5, 12), (18, 30)]


def test_the_pace_follows_the_hub() -> None:
    def allowed(took_s: float, rounds: int) -> Iterator[int]:
        resends, stream_seq = Resends(), 0
        resends.begin([Work(7, 1, 1 << 40)])
        for _ in range(rounds):
            size = 0
            while resends.ready:
                stream_seq += 1
                resends.sent(Work(7, 1, 1), 1, 1024, stream_seq, 0.0)
                size += 1024
            assert resends.waits_for_flow
            yield size
            resends.flowed(stream_seq, took_s)

    assert list(allowed(1.0, 3)) == [ALLOWED_BYTES_MIN << step for step in range(3)]
    assert max(allowed(1.0, 12)) == ALLOWED_BYTES_MAX
    assert set(allowed(9.0, 5)) == {ALLOWED_BYTES_MIN}


def ask(lo: int, hi: int, *, id: int = 1, epoch: int = 42) -> ResendAsk:
    return ResendAsk(epoch, ((lo, hi),), id)


async def started(rig: Rig, count: int) -> None:
    await rig.commit(count)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()


async def receipts(rig: Rig) -> list[tuple[Any, ...]]:
    found = []
    for row in await rig.ledger.read("live", 1, 100):
        value: Any = decode(row.body, node="", type="x").points[0].value
        said = json.loads(value.data)
        found.append((said["epoch"], said["lo"], said["hi"], said["reason"]))
    return found


async def test_a_hole_is_appended_again_and_the_position_is_kept(rig: Rig) -> None:
    await started(rig, 9)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ask(3, 5))
        await until(lambda: len(rig.leaf.stored) == 12)
        rig.lane.on_ask(ask(3, 5))  # the same id: nothing
        await rig.commit(1)
        await rig.drained()
    assert rig.leaf.seqs == [1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 10]
    assert rig.leaf.headers[10] == {"Backhaul-Next": "9", "Backhaul-Epoch": "42"}
    assert rig.ledger.lanes["bulk"].steps.last == 3


async def test_after_a_crash_in_a_run_its_tail_tells_the_position(rig: Rig) -> None:
    """Nothing new is repeated or left out, and a store that lost the run reuses no sequence."""
    await started(rig, 9)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ask(3, 7))
        await until(lambda: len(rig.leaf.stored) == 14)
    del rig.leaf.stored[-2:]
    again = rig.reopened()
    await rig.commit(2)
    async with rig.connected(Connection(rig.leaf), again):
        await until(lambda: again.appender.done)
    assert rig.leaf.seqs == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert rig.leaf.purges == 1
    assert rig.leaf.purged >= 14, "beyond every sequence the run had"


async def test_what_the_ledger_has_no_more_is_found_in_out_or_gets_a_receipt(rig: Rig) -> None:
    await started(rig, 9)
    await rig.confirm(4)
    async with rig.connected(Connection(rig.leaf)):
        await until(lambda: rig.ledger.lanes["bulk"].confirmed == 4)
    await rig.ledger._db.execute("DELETE FROM messages WHERE lane = 2 AND seq <= 6")
    rig.leaf.stored, rig.leaf.headers = rig.leaf.stored[2:], rig.leaf.headers[2:]
    rig.leaf.purged = 2
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ask(1, 5))
        await until(lambda: rig.leaf.seqs[-3:] == [3, 4, 5])
        await until(lambda: rig.ledger.lanes["live"].last_seq == 1)
        assert await receipts(rig) == [(42, 1, 2, "forgotten: the hub had confirmed it")]


async def test_another_epoch_is_answered_from_out_or_by_a_receipt(rig: Rig) -> None:
    """The ledger was deleted: what the hub asks of the one before is in OUT, or lost."""
    rig.leaf.stored = [encode_frame([Point("n", "t", 1, 1.0)], epoch=41, seq=n) for n in (7, 8)]
    await rig.commit(1)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ask(6, 8, epoch=41))
        await until(lambda: rig.leaf.seqs == [7, 8, 1, 7, 8])
        await until(lambda: rig.ledger.lanes["live"].last_seq == 1)
    assert await receipts(rig) == [(41, 6, 6, "ledger lost")]
    assert rig.leaf.headers[-1] == {"Backhaul-Next": "1", "Backhaul-Epoch": "42"}


@pytest.mark.parametrize(
    ("machine", "said"), [("", []), ("other", []), ("this", [(41, 6, 6, "ledger lost")])]
)
async def test_of_a_strangers_epoch_only_the_machine_that_is_named_says_that_it_is_lost(
    rig: Rig, machine: str, said: list[tuple[int, int, int, str]]
) -> None:
    rig.lane.holes._machine = "this"
    await rig.commit(1)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        rig.lane.on_ask(ResendAsk(41, ((6, 6),), 1, machine))
        await until(lambda: rig.lane.holes.answered == 1)
    assert await receipts(rig) == said


def spans(lane: LaneState | None, given_up: list[Span], hi: int, *, alone: bool) -> list[Span]:
    return reasons(lane, given_up, 1, hi, alone=alone)


def test_what_another_machine_may_have_is_not_given_up() -> None:
    lane = LaneState(1, "bulk", 41, next_seq=9, confirmed=4)
    assert spans(None, [], 12, alone=False) == []
    assert spans(lane, [], 12, alone=False) == [(1, 4, FORGOTTEN)]
    evicted = (5, 5, "evicted: old")
    assert spans(lane, [evicted], 12, alone=False) == [(1, 4, FORGOTTEN), evicted]
    assert spans(lane, [(5, 6, MOVED)], 6, alone=False) == [(1, 4, FORGOTTEN)]


def test_one_machine_alone_says_of_everything_that_is_nowhere_why() -> None:
    lane = LaneState(1, "bulk", 41, next_seq=9, confirmed=4)
    assert spans(None, [], 12, alone=True) == [(1, 12, LOST)]
    forgotten, lost = (1, 4, FORGOTTEN), (9, 12, LOST)
    assert spans(lane, [], 12, alone=True) == [forgotten, (5, 8, MISSING), lost]
    # In its place stood a message of a ledger that is no more.
    known = [(5, 6, MOVED)]
    assert spans(lane, known, 12, alone=True) == [forgotten, (5, 6, LOST), (7, 8, MISSING), lost]


async def test_a_request_beyond_what_was_given_out_halts_the_lane(rig: Rig) -> None:
    await started(rig, 3)
    rig.lane.on_ask(ask(2, 4))
    assert str(rig.lane.appender.state) == "ledger_behind"


async def test_new_messages_go_between_the_runs(rig: Rig) -> None:
    await started(rig, 100)
    connection = Connection(rig.leaf)
    async with rig.connected(connection):
        await rig.drained()
        rig.lane.appender.last_seq = 100
        rig.lane.on_ask(ask(1, 100))
        await rig.commit(40)
        await until(lambda: len(rig.leaf.stored) == 240)
    order = rig.leaf.seqs[100:]
    assert sorted(order) == sorted([*range(1, 101), *range(101, 141)])
    first_new = order.index(101)
    assert first_new <= RUN_MESSAGES
    assert order[first_new : first_new + 32] != list(range(first_new + 1, first_new + 33))


def test_headers_are_read_as_the_server_keeps_them() -> None:
    raw = b"NATS/1.0\r\nBackhaul-Next: 9\r\nA: b: c\r\n\r\n"
    assert headers_of(raw) == {"Backhaul-Next": "9", "A": "b: c"}
    assert headers_of(b"") == {}


async def test_the_flow_is_the_consumers(rig: Rig) -> None:
    class Answering:
        async def request(self, request: str) -> dict[str, Any]:
            assert request == "CONSUMER.INFO.OUT_bulk.tok"
            return {"ack_floor": {"stream_seq": 17}}

    assert await OutStream(Answering(), "OUT_bulk").taken("tok") == 17  # type: ignore[arg-type]
    await asyncio.sleep(0)
