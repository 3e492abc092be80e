"""The chains of a real ledger: what is linked when, and what its hashes are told by once rows are gone."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.ledger import chain as ledger_chain
from backhaul_agent.ledger.rows import (
    Adopted,
    CorrectedMessage,
    LedgerChanges,
    LedgerRow,
    Opening,
    OwnRow,
)
from backhaul_agent.uplink.confirmations import UNPROVEN, Claim, Confirmations
from backhaul_codec import chain, hash_of, peek, restamp
from backhaul_codec.protocol.words import FORKED
from backhaul_codec.wire.envelope import NO_LINK
from tests.agent.ledgers import open_ledger, outgoing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        yield ledger
    finally:
        await ledger.close()


def opening(epoch: int) -> Opening:
    return Opening(epoch, lambda old, last: outgoing("live"))


async def linked(ledger: Ledger, epoch: int = 0) -> list[bytes]:
    """Return the hashes of the bulk lane's messages; each must name the one before it."""
    link, found = NO_LINK, []
    for row in await ledger.read("bulk", 1, 99, epoch):
        assert peek(row.body).link == link
        link = hash_of(row.subject, row.body)
        found.append(link)
    return found


def spoil(ledger: Ledger, statement: str) -> None:
    with closing(sqlite3.connect(ledger.path)) as other:
        other.execute(statement)
        other.commit()


async def test_a_lane_is_a_chain_over_commits_and_restarts(tmp_path: Path) -> None:
    path, hashes = tmp_path / "ledger.db", list[bytes]()
    for _ in range(3):
        ledger = await open_ledger(path)
        await ledger.commit(LedgerChanges(messages=[outgoing(), outgoing("live"), outgoing()]))
        await ledger.commit(LedgerChanges(messages=[outgoing()]))
        hashes = await linked(ledger)
        assert ledger.lanes["bulk"].chain == (len(hashes), hashes[-1])
        await ledger.close()
    assert len(hashes) == 9


async def test_what_waits_for_the_time_is_linked_with_all_behind_it_once_it_may_leave(
    ledger: Ledger,
) -> None:
    held = outgoing()._replace(boot=1)
    await ledger.commit(LedgerChanges(messages=[outgoing(), held, outgoing()]))
    await ledger.commit(LedgerChanges(messages=[outgoing()]))
    lane = ledger.lanes["bulk"]
    assert (lane.ready_seq, lane.last_seq, lane.chain.seq) == (1, 4, 1)
    [pending] = await ledger.pending((), 9)
    await ledger.commit(
        LedgerChanges(settled=[CorrectedMessage(pending.id, outgoing(size=11).body)])
    )
    hashes = await linked(ledger)
    assert (lane.ready_seq, lane.chain) == (4, (4, hashes[-1]))


async def test_a_hash_is_told_by_the_message_behind_it(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges(messages=[outgoing() for _ in range(5)]))
    lane, hashes = ledger.lanes["bulk"], await linked(ledger)
    assert [await ledger.hash_at(lane, seq) for seq in range(7)] == [None, *hashes, None]
    spoil(ledger, "UPDATE messages SET body = CAST(body || x'00' AS BLOB) WHERE seq = 3")
    assert await ledger.hash_at(lane, 3) == hashes[2]
    spoil(ledger, "DELETE FROM messages WHERE seq IN (3, 4)")
    assert await ledger.hash_at(lane, 4) == hashes[3]
    assert await ledger.hash_at(lane, 3) is None
    assert await ledger.hash_at(lane, 2) == hashes[1]
    spoil(ledger, "UPDATE messages SET body = CAST(body || x'00' AS BLOB) WHERE seq = 2")
    assert await ledger.hash_at(lane, 2) is None
    assert await ledger.is_linked(lane, 2)


class Words:
    """What of the writer a lane's confirmations use."""

    def __init__(self) -> None:
        self.over: list[str] = []
        self.gate = self.epochs = self

    def behind(self, why: str) -> None:
        self.over.append(why)

    def wake(self) -> None:
        pass


@pytest.fixture
async def confirmations(ledger: Ledger) -> Confirmations:
    await ledger.commit(LedgerChanges(messages=[outgoing() for _ in range(5)]))
    return Confirmations("bulk", ledger, Words())  # type: ignore[arg-type]


def over(confirmations: Confirmations) -> list[str]:
    words = confirmations._writer
    assert isinstance(words, Words)
    return words.over


async def test_a_watermark_counts_where_its_hash_is_the_ledgers_own(
    ledger: Ledger, confirmations: Confirmations
) -> None:
    hashes = await linked(ledger)
    for seq in (3, 5):
        confirmations.claim(42, Claim(seq, hashes[seq - 1]))
        assert confirmations.due
        assert await confirmations.judge() == [(42, seq)]
        assert not confirmations.due
    confirmations.claim(41, Claim(3, hashes[2]))  # of an epoch that nobody knows
    confirmations.claim(42, Claim(0, NO_LINK))
    assert await confirmations.judge() == [(42, 0)]
    assert not over(confirmations)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (Claim(4, b"others"), FORKED),
        (Claim(5, b"others"), FORKED),
        (Claim(6, b"others"), "the hub holds more of bulk than the ledger"),
    ],
)
async def test_another_hash_ends_the_epoch_and_confirms_nothing(
    ledger: Ledger, confirmations: Confirmations, claim: Claim, why: str
) -> None:
    confirmations.claim(42, claim)
    assert await confirmations.judge() == []
    assert over(confirmations) == [why]
    assert confirmations.disputed == {42}
    confirmations.claim(42, claim)
    await confirmations.judge()
    assert over(confirmations) == [why]
    confirmations.settle(42)
    ledger.lanes["bulk"].watermark = ledger.lanes["bulk"].last_seq  # as who compares records it
    confirmations.claim(42, claim)
    assert not confirmations.due
    assert confirmations.disputed == set()


@pytest.mark.parametrize(("fork", "why"), [(1, FORKED), (2, FORKED), (3, UNPROVEN)])
async def test_what_the_hub_says_of_a_fork_ends_the_epoch_though_the_hash_is_right(
    ledger: Ledger, confirmations: Confirmations, fork: int, why: str
) -> None:
    hashes = await linked(ledger)
    confirmations.claim(42, Claim(3, hashes[2], fork))
    assert await confirmations.judge() == [(42, 3)]
    assert over(confirmations) == [why]


async def test_a_former_epoch_that_is_merely_over_is_in_no_doubt(
    ledger: Ledger, confirmations: Confirmations
) -> None:
    hashes = await linked(ledger)
    await ledger.commit(LedgerChanges(opening=opening(43)))
    for fork, disputed in ((1, set()), (3, set()), (2, {42})):
        confirmations.claim(42, Claim(3, hashes[2], fork))
        assert await confirmations.judge() == [(42, 3)]
        assert confirmations.disputed == disputed
    assert not over(confirmations)


async def test_a_hub_without_hashes_is_believed_of_messages_without_links_alone(
    ledger: Ledger, confirmations: Confirmations
) -> None:
    confirmations.claim(42, Claim(3))
    assert await confirmations.judge() == []
    plain = [
        LedgerRow(seq, "f.n", restamp(outgoing().body, epoch=7, seq=seq)) for seq in range(1, 5)
    ]
    await ledger.commit(LedgerChanges(opening=opening(43)))
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 7, plain)]))
    confirmations.claim(7, Claim(3, hash_of("f.n", plain[2].body)))
    assert await confirmations.judge() == [(7, 3)]
    confirmations.claim(7, Claim(4))
    assert await confirmations.judge() == [(7, 4)]
    assert not over(confirmations)


async def test_what_is_adopted_stands_as_it_stood_in_out(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges(messages=[outgoing()]))
    link, rows = b"before", []
    for seq in (4, 5, 6):
        body = chain(outgoing().body, epoch=9, seq=seq, link=link)
        rows.append(LedgerRow(seq, "f.n", body))
        link = hash_of("f.n", body)
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, rows)]))
    lane = ledger.lane("bulk", 9)
    assert lane is not None
    assert (lane.confirmed, lane.last_seq, lane.chain) == (3, 6, (6, link))
    assert await ledger.read("bulk", 1, 9, 9) == rows
    assert ledger.lanes["bulk"].last_seq == 1


async def test_what_is_adopted_already_is_not_adopted_again(ledger: Ledger) -> None:
    """A commit that failed may have been written after all, and what is owed is tried again."""
    link, rows = b"before", []
    for seq in (4, 5, 6):
        body = chain(outgoing().body, epoch=9, seq=seq, link=link)
        rows.append(LedgerRow(seq, "f.n", body))
        link = hash_of("f.n", body)
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, rows[:2])]))
    again = [Adopted("bulk", 9, rows[:2]), Adopted("bulk", 9, rows[:2])]
    await ledger.commit(LedgerChanges(adopted=again))
    await ledger.commit(LedgerChanges(adopted=[*again, Adopted("bulk", 9, rows[1:])]))
    lane = ledger.lane("bulk", 9)
    assert lane is not None
    assert (lane.confirmed, lane.last_seq, lane.chain) == (3, 6, (6, link))
    assert await ledger.read("bulk", 1, 9, 9) == rows


async def test_more_damaged_messages_than_are_linked_at_a_time_are_passed_over(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_chain, "LINK_ROWS", 2)
    held = outgoing()._replace(boot=1)
    await ledger.commit(LedgerChanges(messages=[held, *[outgoing()] * 4]))
    spoil(ledger, "UPDATE messages SET body = x'00' WHERE seq BETWEEN 2 AND 4")
    [pending] = await ledger.pending((), 9)
    settled = LedgerChanges(settled=[CorrectedMessage(pending.id, outgoing(size=11).body)])
    await asyncio.wait_for(ledger.commit(settled), 10)
    first, *_, last = await ledger.read("bulk", 1, 9)
    assert peek(last.body).link == hash_of(first.subject, first.body)
    assert ledger.lanes["bulk"].chain == (5, hash_of(last.subject, last.body))


def spared(seq: int) -> OwnRow:
    body = chain(outgoing().body, epoch=9, seq=seq, link=NO_LINK)
    return OwnRow(0, seq, "f.n", body, 0, 5, 6)


async def test_what_is_moved_keeps_its_worth_and_may_come_below_what_is_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, [spared(5), spared(7)])]))
    await ledger.commit(LedgerChanges(former={("bulk", 9): 7}))
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, [spared(3)])]))
    for _ in range(2):
        lane = ledger.lane("bulk", 9)
        assert lane is not None
        assert (lane.watermark, lane.confirmed, lane.last_seq) == (2, 2, 7)
        assert lane.chain == (7, hash_of("f.n", spared(7).body))
        found = await ledger.owned(lane, 0, 9)
        assert [row._replace(id=0) for row in found] == [spared(seq) for seq in (3, 5, 7)]
        await ledger.close()
        ledger = await open_ledger(path)
    await ledger.close()


@pytest.mark.parametrize(
    ("rows", "seq", "proven"),
    [
        ([spared(5), spared(7)], 7, False),
        ([spared(5), spared(7)], 5, True),  # all that there is up to there
        ([spared(1), spared(2)], 2, False),  # the first of any lane names none
        ([spared(1), spared(2)], 1, True),
    ],
)
async def test_in_a_spare_epoch_a_hash_speaks_for_its_own_message_alone(
    ledger: Ledger, confirmations: Confirmations, rows: list[OwnRow], seq: int, proven: bool
) -> None:
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, rows)]))
    there = {row.seq: hash_of(row.subject, row.body) for row in rows}
    confirmations.claim(9, Claim(seq, there[seq]))
    assert await confirmations.judge() == ([(9, seq)] if proven else [])
    assert confirmations.disputed == (set() if proven else {9})
    assert not over(confirmations)


async def test_what_is_moved_twice_is_moved_and_what_finds_another_in_its_place_stays(
    ledger: Ledger,
) -> None:
    """A commit that failed may have been written; and OUT may have had another message of that place."""
    await ledger.commit(LedgerChanges(messages=[outgoing(), outgoing(size=30)]))
    mine, other = await ledger.owned(ledger.lanes["bulk"], 0, 9)
    moved = [
        row._replace(body=chain(row.body, epoch=9, seq=row.seq, link=NO_LINK))
        for row in (mine, other)
    ]
    taken = LedgerRow(2, "f.n", chain(outgoing(size=50).body, epoch=9, seq=2, link=NO_LINK))
    await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, [taken])]))
    for _ in range(2):
        ids = [mine.id, other.id]
        await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 9, moved)], evict=ids))
        assert await ledger.read("bulk", 1, 9) == [LedgerRow(2, "f.n", other.body)]
        there = await ledger.read("bulk", 1, 9, 9)
        assert [row.body for row in there] == [moved[0].body, taken.body]
