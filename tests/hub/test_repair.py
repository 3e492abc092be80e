"""When gaps are asked for, and when not, with a clock that only the test moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.resend_policy import (
    GRACE_S,
    PATIENCE_S,
    PATIENCE_S_MAX,
    RANGES_MAX,
    EpochView,
    LaneAsk,
    LaneRepair,
    LaneView,
    RepairBook,
)

DEVICE, LANE = "VID-001", "bulk"


def missing(
    *gaps: tuple[int, int],
    tail: tuple[int, int] | None = None,
    epoch: int = 7,
    current: bool = True,
) -> EpochView:
    return EpochView(epoch, current, list(gaps), [*gaps, *([tail] if tail else [])])


def view(
    *epochs: EpochView, arrivals: int = 10, lag: int | None = 0, up: float = -100.0
) -> LaneView:
    return LaneView(list(epochs), arrivals, lag, up)


def asks(repair: LaneRepair, shown: LaneView, start_s: float, end_s: float) -> list[float]:
    """Look twice a second; return when it asked."""
    times = [start_s + step / 2 for step in range(int((end_s - start_s) * 2))]
    return [now_s for now_s in times if repair.look(shown, now_s) is not None]


def test_a_gap_is_asked_for_once_it_has_stood_for_a_while() -> None:
    repair, shown = LaneRepair(), view(missing((3, 4), (9, 9)))
    assert repair.look(shown, 0.0) is None
    assert repair.look(shown, GRACE_S - 0.1) is None
    assert repair.look(shown, GRACE_S) == LaneAsk(7, ((3, 4), (9, 9)))
    assert repair.look(shown, GRACE_S + 0.5) is None


def test_a_gap_that_fills_by_itself_is_not_asked_for() -> None:
    repair = LaneRepair()
    for step in range(20):
        assert repair.look(view(missing((3 + step, 30)), arrivals=step), float(step)) is None


def test_it_is_asked_again_ever_less_often_while_nothing_of_it_comes() -> None:
    times = asks(LaneRepair(), view(missing((3, 4))), 0.0, 2000.0)
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert waits[:3] == [PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S]
    assert waits[-1] == PATIENCE_S_MAX


def test_it_is_not_asked_again_while_something_of_it_comes() -> None:
    repair = LaneRepair()
    asks(repair, view(missing((3, 400))), 0.0, GRACE_S + 1)
    for step in range(100):
        shown = view(missing((4 + step, 400)), arrivals=11 + step)
        assert repair.look(shown, GRACE_S + 1 + step * (PATIENCE_S - 1)) is None


def test_it_is_not_asked_again_while_a_backlog_is_in_front_of_it() -> None:
    repair = LaneRepair()
    assert asks(repair, view(missing((3, 4)), lag=5000), 0.0, 3.0) == [GRACE_S]
    assert asks(repair, view(missing((3, 4)), lag=5000), 3.0, 600.0) == []
    (asked_s,) = asks(repair, view(missing((3, 4)), lag=0), 600.0, 610.0)
    assert PATIENCE_S - 1 <= asked_s - 600.0 <= PATIENCE_S


def test_what_is_above_all_that_came_is_asked_for_once_the_lane_stands_still() -> None:
    """Tail loss: the vehicle's mark says more than ever arrived, and its source reports lag 0."""
    repair, shown = LaneRepair(), missing(tail=(11, 20))
    moving = [repair.look(view(shown, arrivals=step), step / 2) for step in range(20)]
    assert moving == [None] * 20
    assert asks(repair, view(shown, arrivals=19, lag=8), 10.0, 20.0) == []
    assert repair.look(view(shown, arrivals=19), 20.0) is None
    found = [repair.look(view(shown, arrivals=19), 20.0 + step / 2) for step in range(8)]
    assert [each for each in found if each] == [LaneAsk(7, ((11, 20),))]


def test_the_tail_of_a_former_epoch_is_asked_for_though_the_lane_moves() -> None:
    repair, shown = LaneRepair(), missing(tail=(11, 20), epoch=5, current=False)
    found = [repair.look(view(shown, arrivals=step), step / 2) for step in range(10)]
    assert [each for each in found if each] == [LaneAsk(5, ((11, 20),))]


def test_known_gaps_are_asked_for_at_once_when_the_link_comes() -> None:
    repair, shown = LaneRepair(), view(missing((3, 4)))
    asks(repair, shown, 0.0, 300.0)
    assert repair.look(replace(shown, up_since_s=300.0), 300.0) == LaneAsk(7, ((3, 4),))
    # ... but not each time where it comes and goes
    assert repair.look(replace(shown, up_since_s=303.0), 303.0) is None
    assert repair.look(replace(shown, up_since_s=312.0), 312.0) == LaneAsk(7, ((3, 4),))


def test_a_gap_known_before_the_link_is_asked_for_at_once() -> None:
    repair, shown = LaneRepair(), view(missing((3, 4)), up=0.5)
    repair.note(shown.epochs, 0.0)
    assert repair.look(shown, 0.5) == LaneAsk(7, ((3, 4),))


def test_epochs_are_asked_for_one_after_the_other_the_current_one_first() -> None:
    repair, both = LaneRepair(), view(missing((3, 4)), missing((1, 9), epoch=5, current=False))
    found = [(step / 2, repair.look(both, step / 2)) for step in range(60)]
    asked = [(now_s, each.epoch) for now_s, each in found if each]
    assert asked[0] == (GRACE_S, 7)
    assert {epoch for _, epoch in asked} == {5, 7}
    assert all(later - sooner >= PATIENCE_S for (sooner, _), (later, _) in pairwise(asked))


def test_no_more_ranges_than_a_request_may_have_the_lowest_first() -> None:
    gaps = [(2 * number, 2 * number) for number in range(1, 1000)]
    repair = LaneRepair()
    repair.look(view(missing(*gaps)), 0.0)
    ask = repair.look(view(missing(*gaps)), GRACE_S)
    assert ask is not None
    assert ask.ranges == tuple(gaps[:RANGES_MAX])


def test_the_request_is_taken_back_once_all_has_come() -> None:
    """A vehicle that reads DOWN from its start must not send again what arrived long ago."""
    repair = LaneRepair()
    asks(repair, view(missing((3, 4))), 0.0, 3.0)
    assert repair.look(view(arrivals=12), 3.0) == LaneAsk(7, ())
    assert repair.idle
    assert repair.look(view(arrivals=12), 4.0) is None


def test_a_gap_that_nobody_was_asked_for_leaves_nothing_to_take_back() -> None:
    repair = LaneRepair()
    repair.look(view(missing((3, 4))), 0.0)
    assert repair.look(view(arrivals=12), 0.5) is None
    assert repair.idle


def arrive(continuity: Continuity, *seqs: int, epoch: int = 7) -> None:
    for seq in seqs:
        continuity.arrived(LaneKey(DEVICE, LANE, epoch), seq, 10, seq)


def test_the_book_looks_at_lanes_of_connected_devices_only() -> None:
    continuity = Continuity()
    book = RepairBook(continuity)
    arrive(continuity, 1, 2, 5)
    assert list(book.asks(lambda _: None, {}, 0.0)) == []
    assert list(book.asks({"VID-002": -9.0}.get, {}, 100.0)) == []
    found = list(book.asks({DEVICE: 100.0}.get, {(DEVICE, LANE): 0}, 100.0))
    assert found == [(DEVICE, LANE, LaneAsk(7, ((3, 4),)))]
    arrive(continuity, 3, 4)
    found = list(book.asks({DEVICE: 100.0}.get, {(DEVICE, LANE): 0}, 104.0))
    assert found == [(DEVICE, LANE, LaneAsk(7, ()))]
    assert list(book.asks({DEVICE: 100.0}.get, {(DEVICE, LANE): 0}, 105.0)) == []


def test_what_waits_in_up_for_its_dictionary_is_not_asked_for() -> None:
    continuity = Continuity()
    book = RepairBook(continuity)
    arrive(continuity, 1, 2, 6)
    for seq in (3, 4):
        continuity.wait(LaneKey(DEVICE, LANE, 7), seq, b"names")
    up, lags = {DEVICE: 100.0}, {(DEVICE, LANE): 0}
    found = [ask for now_s in range(100, 106) for ask in book.asks(up.get, lags, now_s)]
    assert found == [(DEVICE, LANE, LaneAsk(7, ((5, 5),)))]
    arrive(continuity, 5)
    found = [ask for now_s in range(106, 300) for ask in book.asks(up.get, lags, now_s)]
    assert found == [(DEVICE, LANE, LaneAsk(7, ()))]
    assert continuity.lanes[LaneKey(DEVICE, LANE, 7)].gaps == [(3, 4)], (
        "its hour waits all the same"
    )
    arrive(continuity, 3)
    continuity.waited(DEVICE, b"names")  # and UP has lost the other one meanwhile
    found = [ask for now_s in range(300, 309) for ask in book.asks(up.get, lags, now_s)]
    assert found[0] == (DEVICE, LANE, LaneAsk(7, ((4, 4),)))


def test_what_waits_for_another_dictionary_is_not_asked_for_when_one_has_come() -> None:
    continuity, key = Continuity(), LaneKey(DEVICE, LANE, 7)
    arrive(continuity, 1, 6)
    for seq, digest in ((2, b"one"), (3, b"other"), (4, b"other"), (5, b"one")):
        continuity.wait(key, seq, digest)
    continuity.waited(DEVICE, b"one")
    assert continuity.lanes[key].wanted == ([(2, 2), (5, 5)], [(2, 2), (5, 5)])
    continuity.waited(DEVICE, b"other")
    assert continuity.lanes[key].wanted == ([(2, 5)], [(2, 5)])


def test_the_book_asks_at_once_for_what_was_missing_before_the_link_came() -> None:
    continuity = Continuity()
    arrive(continuity, 1, 2, 5)
    again = Continuity()
    again.restore(continuity.lanes)  # as after a restart of the hub
    book = RepairBook(again)
    assert list(book.asks(lambda _: None, {}, 0.0)) == []
    assert list(book.asks({DEVICE: 60.0}.get, {}, 60.0)) == [(DEVICE, LANE, LaneAsk(7, ((3, 4),)))]


def test_the_book_asks_for_what_a_mark_told_of_a_former_epoch() -> None:
    continuity = Continuity()
    book = RepairBook(continuity)
    arrive(continuity, 1, 2, epoch=5)
    continuity.say(LaneKey(DEVICE, LANE, 5), 4)
    continuity.end(DEVICE, 5)
    arrive(continuity, 1, epoch=7)
    found = [
        each
        for now_s in range(9)
        for each in book.asks({DEVICE: -9.0}.get, {(DEVICE, LANE): 0}, now_s)
    ]
    assert found[0] == (DEVICE, LANE, LaneAsk(5, ((3, 4),)))
