"""Continuity against a plain model: sets of seqs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_book import (
    EPOCHS_MAX,
    FORGOTTEN_AFTER_NS,
    HOLES_MAX,
    LANES_MAX,
    Continuity,
)
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import Explained

if TYPE_CHECKING:
    import pytest

DEVICE = "VID-001"
LANE = LaneKey(DEVICE, "bulk", 7)
ARRIVALS = st.lists(st.integers(1, 40), max_size=80)
RECEIPTS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=4)


@given(ARRIVALS, RECEIPTS)
def test_watermark_never_passes_what_is_neither_held_nor_explained(
    arrivals: list[int], receipts: list[tuple[int, int]]
) -> None:
    continuity, seen = Continuity(), set[int]()
    for seq in arrivals:
        assert continuity.arrived(LANE, seq, 10, seq) is (seq not in seen)
        seen.add(seq)
    accounted = set(seen)
    for low, length in receipts:
        continuity.explain(LANE, low, low + length, "because")
        accounted |= set(range(low, low + length + 1))
    if not accounted:
        assert continuity.lanes == {}
        return
    state = continuity.lanes[LANE]
    assert set(range(1, state.watermark + 1)) <= accounted
    assert state.watermark + 1 not in accounted
    missing = set(range(1, max(accounted) + 1)) - accounted
    assert numbers(state.gaps) == missing
    assert state.whole is (not missing)
    assert numbers((low, high) for low, high, _ in state.receipts) == numbers(state.explained)
    assert state.messages == len(seen)
    assert state.messages + state.repeats == len(arrivals)
    assert state.body_bytes == 10 * len(seen)


def numbers(ranges: object) -> set[int]:
    return {seq for low, high in ranges for seq in range(low, high + 1)}  # type: ignore[attr-defined]


@given(ARRIVALS, st.sets(st.integers(1, 40)), st.integers(0, 50))
def test_what_up_has_lost_is_a_gap_up_to_the_newest_ever_seen_or_spoken_of(
    arrivals: list[int], stored: set[int], said: int
) -> None:
    continuity, seen = Continuity(), set(arrivals)
    for seq in arrivals:
        continuity.arrived(LANE, seq, 10, seq)
    continuity.say(LANE, said)
    left = stored & seen
    continuity.restate(LANE, RangeSet((seq, seq) for seq in left))
    state = continuity.lanes[LANE]
    assert continuity.lost(LANE) == state.lost == len(seen - left)
    assert numbers(state.held) == left
    assert set(range(1, state.watermark + 1)) <= left
    assert numbers(state.gaps) == set(range(1, max(seen, default=0) + 1)) - left
    assert numbers(state.owed) == set(range(1, max([said, *seen]) + 1)) - left
    assert state.whole is (not state.owed)
    # What comes again was seen before: no consumer takes it for new.
    assert not any(continuity.arrived(LANE, seq, 10, seq) for seq in seen)
    assert numbers(state.held) == seen


def test_what_the_limits_of_up_took_stays_held() -> None:
    continuity = Continuity()
    for seq in range(1, 7):
        continuity.arrived(LANE, seq, 10, seq)
    continuity.age(LANE, RangeSet([(1, 3)]))
    continuity.restate(LANE, RangeSet([(5, 5)]))
    assert continuity.lost(LANE) == 2
    assert list(continuity.lanes[LANE].held) == [(1, 3), (5, 5)]
    assert continuity.lanes[LANE].watermark == 3


def test_the_first_reason_for_a_seq_stands_and_neighbours_become_one() -> None:
    continuity = Continuity()
    for low, high, reason in ((2, 3, "full"), (4, 5, "full"), (4, 8, "corrupt")):
        continuity.explain(LANE, low, high, reason)
    assert continuity.lanes[LANE].receipts == [Explained(2, 5, "full"), Explained(6, 8, "corrupt")]


def test_epochs_of_a_lane_are_counted_apart() -> None:
    """A ledger that was deleted starts again at seq 1: those are other messages."""
    continuity = Continuity()
    assert continuity.arrived(LANE, 1, 10, 1)
    assert continuity.arrived(LANE._replace(epoch=8), 1, 10, 2)
    epoch, state = continuity.current(DEVICE)["bulk"]
    assert (epoch, state.watermark) == (8, 1)


def test_the_newest_epoch_is_known_again_after_a_restart() -> None:
    continuity = Continuity()
    for epoch, stored_ns in ((7, 5), (8, 9), (9, 2)):
        continuity.arrived(LANE._replace(epoch=epoch), 1, 10, stored_ns)
    again = Continuity()
    again.restore(dict(reversed(continuity.lanes.items())))
    assert again.current(DEVICE)["bulk"][0] == 8
    assert continuity.current(DEVICE)["bulk"][0] == 8
    assert again.current("VID-002") == {}


def test_an_epoch_that_is_over_is_not_the_newest_though_it_was_heard_from_last() -> None:
    """What is sent again of a former ledger must not make the hub speak to that one."""
    continuity = Continuity()
    continuity.arrived(LANE, 1, 10, 1)
    continuity.arrived(LANE._replace(epoch=8), 1, 10, 2)
    continuity.arrived(LANE, 2, 10, 3)
    assert continuity.current(DEVICE)["bulk"][0] == 7
    assert continuity.end(DEVICE, 7)
    assert continuity.current(DEVICE)["bulk"][0] == 8
    continuity.arrived(LANE, 3, 10, 4)
    assert continuity.current(DEVICE)["bulk"][0] == 8


def test_a_lane_is_in_the_epoch_in_which_the_live_lane_speaks() -> None:
    """An older agent does not say that an epoch is over which its ledger has lost, and sends of it late."""
    live, continuity = LANE._replace(lane="live"), Continuity()
    continuity.arrived(live, 1, 10, 1)
    continuity.arrived(live._replace(epoch=8), 1, 10, 2)
    continuity.say(LANE._replace(epoch=8), 1)
    continuity.arrived(LANE, 1, 10, 3)
    assert continuity.current(DEVICE)["bulk"][0] == 7, "of epoch 8 nothing has come there"
    continuity.arrived(LANE._replace(epoch=8), 1, 10, 4)
    continuity.arrived(LANE, 2, 10, 5)
    assert continuity.current(DEVICE) == {
        "live": (8, continuity.lanes[live._replace(epoch=8)]),
        "bulk": (8, continuity.lanes[LANE._replace(epoch=8)]),
    }
    continuity.arrived(live, 2, 10, 6)
    assert continuity.current(DEVICE)["bulk"][0] == 7, "as of two machines, each in its turn"


def test_the_epoch_in_which_a_lane_is_makes_no_room() -> None:
    """Whatever else of the lane came after it."""
    live, continuity = LANE._replace(lane="live"), Continuity()
    continuity.arrived(live, 1, 10, 1)
    continuity.arrived(LANE, 1, 10, 1)
    for epoch in range(10, EPOCHS_MAX + 9):
        continuity.arrived(LANE._replace(epoch=epoch), 1, 10, 2)
    late = LANE._replace(epoch=9)
    assert continuity.beyond_bounds(late, 1, FORGOTTEN_AFTER_NS + 2) is None
    assert LANE in continuity.lanes
    assert LANE._replace(epoch=10) not in continuity.lanes


def test_a_lane_that_was_only_spoken_of_is_owed_and_not_current() -> None:
    continuity = Continuity()
    continuity.say(LANE, 5)
    assert continuity.lanes[LANE].owed == [(1, 5)]
    assert continuity.lanes[LANE].gaps == []
    assert continuity.current(DEVICE) == {}


def test_what_is_known_of_an_epoch_is_the_highest_that_anybody_has_heard_of() -> None:
    continuity = Continuity()
    continuity.arrived(LANE, 4, 10, 1)
    continuity.restate(LANE, RangeSet())
    continuity.say(LANE._replace(lane="live"), 9)
    continuity.explain(LANE._replace(lane="n_gps"), 5, 6, "so")
    continuity.arrived(LANE._replace(epoch=8), 77, 10, 1)
    assert continuity.known(DEVICE, 7) == {"bulk": 4, "live": 9, "n_gps": 6}
    assert continuity.known("VID-002", 7) == {}


def test_changed_lanes_are_handed_out_once() -> None:
    continuity = Continuity()
    continuity.arrived(LANE, 1, 10, 1)
    assert set(continuity.take_changed()) == {LANE}
    assert continuity.take_changed() == {}
    assert continuity.take_stirred() == [LANE]
    continuity.arrived(LANE, 1, 10, 2)
    assert set(continuity.take_changed()) == {LANE}, "a repeat is counted, so it is stored"
    assert continuity.take_stirred() == [LANE]


def feed(continuity: Continuity, key: LaneKey, seq: int, stored_ns: int = 1) -> str | None:
    bound = continuity.beyond_bounds(key, seq, stored_ns)
    if bound is None:
        continuity.arrived(key, seq, 10, stored_ns)
    return bound


def test_a_device_that_invents_epochs_fills_nothing() -> None:
    continuity = Continuity()
    for epoch in range(1, EPOCHS_MAX + 1):
        assert feed(continuity, LANE._replace(epoch=epoch), 1) is None
    assert feed(continuity, LANE._replace(epoch=99_999), 1) == "epochs"
    assert feed(continuity, LANE._replace(epoch=EPOCHS_MAX), 2) is None, "the others go on"
    assert feed(continuity, LANE._replace(lane="live"), 1) is None, "other lanes too"
    assert feed(continuity, LANE._replace(device="VID-002", epoch=99_999), 1) is None
    assert continuity.refused == {(DEVICE, "epochs"): 1}
    continuity.say(LANE._replace(epoch=99_999), 9)
    assert not continuity.explain(LANE._replace(epoch=99_999), 1, 9, "so")
    assert LANE._replace(epoch=99_999) not in continuity.lanes


def test_a_device_that_invents_lanes_fills_nothing() -> None:
    continuity = Continuity()
    for number in range(LANES_MAX):
        assert feed(continuity, LANE._replace(lane=f"n_{number}"), 1) is None
    assert feed(continuity, LANE, 1) == "epochs"


def test_a_device_that_invents_lanes_is_looked_through_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    continuity, looks = Continuity(), 0
    current = Continuity.current_keys

    def counted(self: Continuity, device: str) -> list[LaneKey]:
        nonlocal looks
        looks += 1
        return current(self, device)

    for number in range(LANES_MAX):
        feed(continuity, LANE._replace(lane=f"n_{number}"), 1)
    monkeypatch.setattr(Continuity, "current_keys", counted)
    for tenth in range(30):
        assert feed(continuity, LANE, 1, tenth * 10**8) == "epochs"
    assert looks == 3


def test_a_former_epoch_of_long_ago_makes_room_for_a_new_one() -> None:
    """A vehicle whose ledger is lost now and then over the years is no hostile one."""
    continuity = Continuity()
    for epoch in range(1, EPOCHS_MAX + 1):
        feed(continuity, LANE._replace(epoch=epoch), 1, epoch)
    continuity.fork(LANE._replace(epoch=1))
    assert continuity.forks == [LANE._replace(epoch=1)]
    now_ns = FORGOTTEN_AFTER_NS + 1
    assert feed(continuity, LANE._replace(epoch=99_998), 1, now_ns) is None
    assert continuity.forks == []
    assert continuity.take_forgotten() == [LANE._replace(epoch=1)]
    assert LANE._replace(epoch=1) not in continuity.lanes
    assert feed(continuity, LANE._replace(epoch=99_999), 1, now_ns) == "epochs", "2 is too young"
    assert LANE._replace(epoch=1) not in continuity.take_changed()


def test_a_device_that_leaves_holes_without_end_fills_nothing() -> None:
    continuity = Continuity()
    for number in range(HOLES_MAX):
        assert feed(continuity, LANE, 1 + 2 * number) is None
    beyond = 1 + 2 * HOLES_MAX + 10
    assert feed(continuity, LANE, beyond) == "holes"
    assert feed(continuity, LANE._replace(lane="live"), 1) == "holes"
    assert feed(continuity, LANE, 2 * HOLES_MAX) is None, "the lane goes on"
    assert feed(continuity, LANE, 3) is None, "repeats are counted"
    assert feed(continuity, LANE, 2) is None, "what fills a hole is welcome"
    assert feed(continuity, LANE, beyond) is None, "and makes room"
    assert continuity.refused == {(DEVICE, "holes"): 2}


def test_a_device_that_writes_receipts_without_end_fills_nothing() -> None:
    continuity = Continuity()
    for number in range(HOLES_MAX):
        assert continuity.explain(LANE, 1 + 2 * number, 1 + 2 * number, "so")
    assert not continuity.explain(LANE, 10**6, 10**6, "so")
    assert continuity.refused == {(DEVICE, "receipts"): 1}
