"""What goes first when room runs out, and what says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.ledger.age_index import AgeMark, Ages
from backhaul_agent.ledger.eviction_policy import (
    ACCOUNT,
    CONFIG,
    EVENT,
    RECEIPT_BYTES,
    STATE,
    TELEMETRY,
    Budget,
    Candidate,
    SeqSpan,
    class_of,
    victims,
)

MIB = 1 << 20
ENOUGH = 1 << 40


@pytest.mark.parametrize(
    ("subject", "value_class"),
    [
        ("f.gps", TELEMETRY),
        ("p.gps.fix.%", STATE),
        ("p.gps", CONFIG),
        ("p.car.gps", CONFIG),
        ("p.car.gps.nodeType.%", CONFIG),
        ("e.crash", EVENT),
        ("r.17", EVENT),
        ("e.receipt", ACCOUNT),
        ("e.clock", ACCOUNT),
        ("n.gps.f.gps", TELEMETRY),
        ("n.gps.p.gps.fix.%", STATE),
        ("n.gps.p.gps", CONFIG),
        ("n.gps.e.crash", EVENT),
    ],
)
def test_a_subject_says_what_its_message_is_worth(subject: str, value_class: int) -> None:
    assert class_of(subject) == value_class


def large(seq: int, lane: int = 1, *, confirmed: bool = False) -> Candidate:
    return Candidate(100 * lane + seq, lane, seq, RECEIPT_BYTES, confirmed)


def test_the_oldest_go_until_there_is_room() -> None:
    rows = [large(seq) for seq in (3, 4, 5, 6)]
    found = victims(rows, {1: [3, 4, 5, 6]}, 2 * rows[0].cost)
    assert (found.ids, found.spans) == ([103, 104], [SeqSpan(1, 3, 4)])
    assert found.bytes == 2 * rows[0].cost


def test_what_stays_parts_two_spans_and_what_is_gone_does_not() -> None:
    rows = [large(seq) for seq in (1, 2, 5, 9)]
    found = victims(rows, {1: [1, 2, 5, 7, 9]}, ENOUGH)
    assert found.spans == [SeqSpan(1, 1, 5), SeqSpan(1, 9, 9)]


def test_lanes_have_spans_of_their_own() -> None:
    rows = [large(1), large(1, lane=2)]
    assert victims(rows, {1: [1], 2: [1]}, ENOUGH).spans == [SeqSpan(1, 1, 1), SeqSpan(2, 1, 1)]


def test_what_the_hub_holds_goes_without_a_receipt() -> None:
    rows = [large(1, confirmed=True), large(2)]
    found = victims(rows, {1: [1, 2]}, ENOUGH)
    assert (sorted(found.ids), found.spans) == ([101, 102], [SeqSpan(1, 2, 2)])


def test_what_would_free_less_than_its_receipt_costs_stays() -> None:
    small = [Candidate(seq, 1, seq, 20) for seq in (1, 3, 4, 5, 6)]
    found = victims(small, {1: [1, 2, 3, 4, 5, 6]}, ENOUGH)
    assert (found.ids, found.spans) == ([3, 4, 5, 6], [SeqSpan(1, 3, 6)])
    assert victims(small, {1: [1, 2, 3, 4, 5, 6]}, ENOUGH, worthwhile=False).spans == [
        SeqSpan(1, 1, 1), SeqSpan(1, 3, 6),
    ]  # fmt: skip


@given(
    st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)),
    st.integers(0, 30_000),
)  # fmt: skip
def test_receipts_explain_what_goes_and_nothing_that_stays(
    chosen: set[int], others: set[int], confirmed: set[int], wanted: int
) -> None:
    rows = [large(seq, confirmed=seq in confirmed) for seq in sorted(chosen)]
    there = sorted(chosen | others)
    found = victims(rows, {1: there}, wanted)
    gone = {id_ - 100 for id_ in found.ids}
    told = {seq for span in found.spans for seq in range(span.lo, span.hi + 1)}
    assert gone <= chosen
    assert gone - confirmed <= told
    assert not told & (set(there) - gone)
    assert found.bytes == sum(row.cost for row in rows if row.seq in gone)
    assert found.bytes >= min(wanted, sum(row.cost for row in rows))


def full(*by_class: int, when_full: str = "evict") -> Budget:
    budget = Budget(MIB, when_full=when_full)
    budget.measured(MIB, by_class)
    return budget


def test_with_room_everything_may_come() -> None:
    budget = Budget(MIB, when_full="refuse")
    budget.measured(MIB // 2, [0, 0, 0, MIB, 0])
    assert not budget.full
    assert budget.refusal(TELEMETRY) is None


@pytest.mark.parametrize(
    ("by_class", "newcomer", "comes"),
    [
        ((MIB, 0, 0, 0, 0), TELEMETRY, True),
        ((0, MIB, 0, 0, 0), TELEMETRY, False),
        ((0, MIB, 0, 0, 0), STATE, True),
        ((0, 0, MIB, 0, 0), STATE, False),
        ((0, 0, 0, MIB, 0), CONFIG, False),
        ((0, 0, 0, MIB, 0), EVENT, True),
        ((0, 0, 0, 0, MIB), EVENT, False),
    ],
)
def test_nothing_goes_for_something_cheaper(
    by_class: tuple[int, ...], newcomer: int, comes: bool
) -> None:
    refusal = full(*by_class).refusal(newcomer)
    assert (refusal is None) is comes
    if refusal is not None:
        assert refusal.code == "ledger_full"
        assert "worth less than" in refusal.message


def test_who_would_rather_refuse_does() -> None:
    refusal = full(MIB, 0, 0, 0, 0, when_full="refuse").refusal(EVENT)
    assert refusal is not None
    assert 'when_full is "refuse"' in refusal.message


def test_a_full_disk_is_named() -> None:
    budget = Budget(64 * MIB)
    budget.measured(MIB, [0, 0, 0, MIB, 0])
    assert not budget.full
    budget.shrink(MIB, "the disk of /data")
    refusal = budget.refusal(TELEMETRY)
    assert refusal is not None
    assert refusal.code == "storage"
    assert refusal.message.startswith("the disk of /data is full")
    budget.restore()
    assert budget.refusal(TELEMETRY) is None


def test_where_nothing_more_can_go_its_like_is_refused_until_there_is_room() -> None:
    budget = full(MIB, 0, 0, 0, 0)
    budget.stuck(STATE)
    assert budget.refusal(STATE) is not None
    assert budget.refusal(CONFIG) is None
    budget.measured(MIB // 2, [MIB // 2, 0, 0, 0, 0])
    budget.measured(MIB, [MIB, 0, 0, 0, 0])
    assert budget.refusal(TELEMETRY) is None


def test_more_goes_at_a_time_than_there_is_too_much() -> None:
    budget = full(MIB, 0, 0, 0, 0)
    assert budget.excess == MIB // 16 + 256 * 1024
    budget.measured(MIB - budget.excess, [0, 0, 0, 0, 0])
    assert budget.excess == 0


HOUR = 3600 * 10**9


def test_what_stands_before_an_old_mark_is_too_old() -> None:
    ages = Ages(24 * 3600.0, [AgeMark(0, {1: 5, 2: 1}), AgeMark(HOUR, {1: 9, 2: 4})])
    assert ages.expired(24 * HOUR - 1) == {}
    assert ages.expired(24 * HOUR) == {1: 5, 2: 1}
    assert ages.expired(25 * HOUR) == {1: 9, 2: 4}
    assert [mark.time_ns for mark in ages.marks] == [HOUR]


def test_a_mark_is_due_now_and_then_and_never_without_a_limit() -> None:
    ages = Ages(64 * 3600.0)
    assert ages.due(0)
    ages.add(AgeMark(0, {1: 1}))
    assert not ages.due(HOUR - 1)
    assert ages.due(HOUR)
    assert not Ages(0.0).due(HOUR)


def test_a_clock_that_was_ahead_makes_nothing_too_old() -> None:
    ages = Ages(24 * 3600.0, [AgeMark(1000 * HOUR, {1: 5})])
    assert ages.due(HOUR)
    ages.add(AgeMark(HOUR, {1: 7}))
    assert ages.expired(24 * HOUR) == {}
    assert ages.expired(25 * HOUR) == {1: 7}
