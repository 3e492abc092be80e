"""Certificates: against a vehicle's life that is known point by point, and by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec.assurance.completeness import (
    HOUR_NS,
    LEDGER_GONE,
    NO_MARK_AFTER,
    HourReport,
    LaneId,
    LaneRecord,
    Mark,
    disjoint,
    hours_between,
    lane_records,
    report_hours,
)
from backhaul_codec.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Mapping

START_NS = 480_000 * HOUR_NS
MINUTE_NS = HOUR_NS // 60
LIVE, BULK = LaneId("live", 7), LaneId("bulk", 7)


def at(hours: float) -> int:
    return START_NS + int(hours * HOUR_NS)


def mark(hours: float, live: int, bulk: int, epoch: int = 7) -> Mark:
    return Mark(at(hours), epoch, live, {"live": live, "bulk": bulk})


def record(
    *held: tuple[int, int], highest: int = 0, **more: list[tuple[int, int, str]]
) -> LaneRecord:
    ranges = RangeSet(held)
    return LaneRecord(ranges, more.get("receipts", []), max(highest, ranges.highest))


def hour(found: list[HourReport], number: int) -> HourReport:
    return next(each for each in found if each.hour_ns == at(number))


WHOLE = [mark(0.5, 1, 0), mark(1, 2, 10), mark(2, 3, 20)]


def test_an_hour_between_two_marks_is_complete_once_all_of_it_is_held() -> None:
    lanes = {LIVE: record((1, 3)), BULK: record((1, 20))}
    found = report_hours(WHOLE, lanes, hours_between(at(0), at(3)))
    assert [each.state for each in found] == ["complete", "complete", "waiting"]
    assert found[2].why == NO_MARK_AFTER
    assert found[0].epochs == (7,)


def test_a_hole_makes_its_hour_wait_and_no_other() -> None:
    lanes = {LIVE: record((1, 3)), BULK: record((1, 14), (17, 20))}
    found = report_hours(WHOLE, lanes, hours_between(at(0), at(2)))
    assert [each.state for each in found] == ["complete", "waiting"]
    assert found[1].missing == (("bulk", 7, 15, 16),)


def test_what_lies_between_the_newest_held_and_the_mark_is_missing_too() -> None:
    lanes = {LIVE: record((1, 3)), BULK: record((1, 14), highest=20)}
    assert hour(report_hours(WHOLE, lanes, hours_between(at(0), at(2))), 1).missing == (
        ("bulk", 7, 15, 20),
    )


def test_a_lane_that_nothing_was_ever_heard_of_is_missing_up_to_the_mark() -> None:
    found = report_hours(WHOLE, {LIVE: record((1, 3))}, hours_between(at(0), at(2)))
    assert [each.state for each in found] == ["waiting", "waiting"]
    assert found[0].missing == (("bulk", 7, 1, 10),)


def test_receipts_explain_what_they_cover_and_no_more() -> None:
    receipts = [(11, 12, "evicted: disk full"), (13, 18, "corrupt row")]
    lanes = {LIVE: record((1, 3)), BULK: record((1, 12), (19, 20), receipts=receipts)}
    found = hour(report_hours(WHOLE, lanes, hours_between(at(0), at(2))), 1)
    assert (found.state, found.explained) == (
        "explained",
        (("bulk", 7, 13, 18, "corrupt row"),),
    )
    lanes[BULK] = record((1, 12), (20, 20), receipts=receipts)
    found = hour(report_hours(WHOLE, lanes, hours_between(at(0), at(2))), 1)
    assert (found.state, found.missing) == ("waiting", (("bulk", 7, 19, 19),))


def test_nothing_is_said_of_hours_before_the_first_mark() -> None:
    assert [each.hour_ns for each in report_hours(WHOLE, {}, hours_between(at(-5), at(1)))] == [
        at(0)
    ]
    assert report_hours([], {LIVE: record((1, 3))}, hours_between(at(-5), at(1))) == []


def test_the_hour_in_which_a_ledger_went_away_is_never_complete() -> None:
    marks = [*WHOLE, mark(2.2, 1, 0, epoch=8), mark(3, 2, 5, epoch=8), mark(4, 3, 9, epoch=8)]
    lanes = {LIVE: record((1, 3)), BULK: record((1, 24))}
    lanes |= {LaneId("live", 8): record((1, 3)), LaneId("bulk", 8): record((1, 9))}
    found = report_hours(marks, lanes, hours_between(at(1), at(4)))
    assert [each.state for each in found] == ["complete", "explained", "complete"]
    assert found[1].explained == (
        ("bulk", 7, 25, 0, LEDGER_GONE),
        ("live", 7, 4, 0, LEDGER_GONE),
    )
    assert found[1].epochs == (7, 8)


def test_the_tail_of_a_former_epoch_is_missing_up_to_what_is_known_of_it() -> None:
    marks = [*WHOLE, mark(2.2, 1, 0, epoch=8), mark(3, 2, 5, epoch=8)]
    lanes = {LIVE: record((1, 3)), BULK: record((1, 24), highest=30)}
    lanes |= {LaneId("live", 8): record((1, 3)), LaneId("bulk", 8): record((1, 9))}
    found = hour(report_hours(marks, lanes, hours_between(at(1), at(3))), 2)
    assert (found.state, found.missing) == ("waiting", (("bulk", 7, 25, 30),))


def test_marks_in_the_same_instant_do_not_hide_what_is_between_them() -> None:
    marks = [mark(0.5, 1, 0), mark(1, 2, 10), mark(1, 3, 20), mark(2, 4, 20)]
    lanes = {LIVE: record((1, 4)), BULK: record((1, 10), highest=20)}
    assert hour(report_hours(marks, lanes, hours_between(at(0), at(2))), 1).state == "waiting"


def test_a_clock_that_was_set_back_hides_nothing() -> None:
    marks = [mark(0.5, 1, 0), mark(3.5, 2, 10), mark(1.2, 3, 20), mark(2, 4, 30)]
    lanes = {LIVE: record((1, 4)), BULK: record((1, 14), (16, 30))}
    states = [each.state for each in report_hours(marks, lanes, hours_between(at(0), at(3)))]
    assert states[1] == "waiting"
    assert states[2] == "waiting"


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_word_on_a_seq_stands(order: int) -> None:
    said = [(1, 5, "a"), (3, 9, "b")][::order]
    expected = {1: [(1, 5, "a"), (6, 9, "b")], -1: [(1, 2, "a"), (3, 9, "b")]}
    assert disjoint(said) == expected[order]


def test_a_lane_that_a_mark_does_not_name_is_judged_as_far_as_anybody_knows() -> None:
    marks = [mark(0.5, 1, 0), Mark(at(1), 7, 2, {"live": 2}), Mark(at(2), 7, 3, {"live": 3})]
    lanes = {LIVE: record((1, 3)), BULK: record((1, 4), (6, 9))}
    found = report_hours(marks, lanes, hours_between(at(0), at(2)))
    assert [each.missing for each in found] == [(("bulk", 7, 5, 5),), (("bulk", 7, 5, 5),)]


def test_a_ledger_that_never_marked_anything_spoils_the_hours_it_may_have_spoken_in() -> None:
    lanes = {LIVE: record((1, 3)), BULK: record((1, 20)), LaneId("bulk", 5): record((2, 4))}
    found = report_hours([*WHOLE, mark(3, 4, 20)], lanes, hours_between(at(0), at(3)))
    assert [each.state for each in found] == ["waiting", "complete", "waiting"]
    assert found[0].missing == (("bulk", 5, 1, 1),)
    assert found[0].explained == (("bulk", 5, 5, 0, LEDGER_GONE),)


def test_only_the_hours_asked_for_are_judged() -> None:
    lanes = {LIVE: record((1, 3)), BULK: record((1, 20))}
    found = report_hours(WHOLE, lanes, [at(2), at(0), at(-3)])
    assert [each.hour_ns for each in found] == [at(2), at(0)]
    assert report_hours(WHOLE, lanes, []) == []


def test_what_is_known_of_lanes_comes_together() -> None:
    held = {LIVE: RangeSet([(1, 3)])}
    receipts = {LIVE: [(4, 6, "a"), (5, 9, "b")], LaneId("n_gps", 9): [(1, 1, "c")]}
    said = [(7, {"live": 12, "bulk": 4}), (7, {"live": 2}), (5, {})]
    assert lane_records(held, receipts, said) == {
        LIVE: LaneRecord(RangeSet([(1, 3)]), [(4, 6, "a"), (7, 9, "b")], 12),
        BULK: LaneRecord(RangeSet(), [], 4),
        LaneId("live", 5): LaneRecord(RangeSet(), [], 0),
        LaneId("n_gps", 9): LaneRecord(RangeSet(), [(1, 1, "c")], 0),
    }


@dataclass
class Life:
    """A vehicle's life, known point by point."""

    acknowledged: dict[LaneId, list[int]] = field(default_factory=dict)
    """By lane: when each seq was acknowledged, seq 1 first."""
    marks: list[Mark] = field(default_factory=list)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    life, now_ns = Life(), START_NS
    for epoch in range(1, draw(st.integers(1, 3)) + 1):
        lanes: dict[str, list[int]] = {"live": [], "bulk": []}
        for name, times in lanes.items():
            life.acknowledged[LaneId(name, epoch)] = times
        for _ in range(draw(st.integers(1, 12))):
            now_ns += draw(st.integers(0, 50)) * MINUTE_NS
            step = draw(st.sampled_from(["live", "bulk", "mark", "mark"]))
            lanes["live" if step == "mark" else step].append(now_ns)
            if step == "mark":
                reached = {name: len(times) for name, times in lanes.items()}
                life.marks.append(Mark(now_ns, epoch, len(lanes["live"]), reached))
    return life


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.data(), lives())
def test_never_complete_over_a_hole(data: st.DataObject, life: Life) -> None:
    """Whatever is lost, marks too, no hour is complete of which something is not held."""
    lanes: dict[LaneId, LaneRecord] = {}
    for id_, times in life.acknowledged.items():
        held = RangeSet((seq, seq) for seq in range(1, len(times) + 1) if data.draw(st.booleans()))
        receipts = disjoint(
            (seq, seq, "because") for seq in range(1, len(times) + 1) if data.draw(st.booleans())
        )
        lanes[id_] = LaneRecord(held, receipts, held.highest)
    # A mark is known where the message that says it is held.
    marks = [mark for mark in life.marks if mark.seq in lanes[LaneId("live", mark.epoch)].held]
    told = report_hours(marks, lanes, hours_between(START_NS, START_NS + 30 * HOUR_NS))
    for report in told:
        lost, unexplained = _lost(life, lanes, report.hour_ns)
        assert not (report.state == "complete" and lost), report
        # What a ledger took away with it has its reason: that the ledger is gone.
        gone = any(each.high == 0 for each in report.explained)
        assert not (report.state == "explained" and unexplained and not gone), report


def _lost(life: Life, lanes: Mapping[LaneId, LaneRecord], hour_ns: int) -> tuple[bool, bool]:
    lost = unexplained = False
    for id_, times in life.acknowledged.items():
        receipted = RangeSet((low, high) for low, high, _ in lanes[id_].receipts)
        for seq, time_ns in enumerate(times, 1):
            inside = hour_ns <= time_ns < hour_ns + HOUR_NS
            if inside and seq not in lanes[id_].held:
                lost = True
                unexplained = unexplained or seq not in receipted
    return lost, unexplained


@given(lives())
def test_complete_wherever_all_is_held_and_one_ledger_spoke_on_both_sides(life: Life) -> None:
    lanes = {
        id_: LaneRecord(RangeSet([(1, len(times))] if times else []), (), len(times))
        for id_, times in life.acknowledged.items()
        if id_.epoch == 1
    }
    one_epoch = [each for each in life.marks if each.epoch == 1]
    found = report_hours(one_epoch, lanes, hours_between(START_NS, START_NS + 30 * HOUR_NS))
    newest_ns = max((each.time_ns for each in one_epoch), default=0)
    for report in found:
        closed = report.hour_ns + HOUR_NS <= newest_ns
        assert report.state == ("complete" if closed else "waiting")
