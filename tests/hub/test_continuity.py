"""Continuity against a plain model: sets of seqs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backhaul_hub.continuity import Continuity, LaneKey

LANE = LaneKey("VID-001", "bulk", 7)
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
        continuity.explain(LANE, low, low + length)
        accounted |= set(range(low, low + length + 1))
    if not accounted:
        assert continuity.lanes == {}
        return
    state = continuity.lanes[LANE]
    assert set(range(1, state.watermark + 1)) <= accounted
    assert state.watermark + 1 not in accounted
    missing = set(range(1, max(accounted) + 1)) - accounted
    assert {seq for low, high in state.gaps for seq in range(low, high + 1)} == missing
    assert state.messages == len(seen)
    assert state.messages + state.repeats == len(arrivals)
    assert state.body_bytes == 10 * len(seen)


def test_epochs_of_a_lane_are_counted_apart() -> None:
    """A ledger that was deleted starts again at seq 1: those are other messages."""
    continuity = Continuity()
    assert continuity.arrived(LANE, 1, 10, 1)
    assert continuity.arrived(LANE._replace(epoch=8), 1, 10, 2)
    epoch, state = continuity.current("VID-001")["bulk"]
    assert (epoch, state.watermark) == (8, 1)


def test_the_newest_epoch_is_known_again_after_a_restart() -> None:
    continuity = Continuity()
    for epoch, stored_ns in ((7, 5), (8, 9), (9, 2)):
        continuity.arrived(LANE._replace(epoch=epoch), 1, 10, stored_ns)
    again = Continuity()
    again.restore(dict(reversed(continuity.lanes.items())))
    assert again.current("VID-001")["bulk"][0] == 8
    assert continuity.current("VID-001")["bulk"][0] == 8
    assert again.current("VID-002") == {}


def test_changed_lanes_are_handed_out_once() -> None:
    continuity = Continuity()
    continuity.arrived(LANE, 1, 10, 1)
    assert set(continuity.take_changed()) == {LANE}
    assert continuity.take_changed() == {}
    continuity.arrived(LANE, 1, 10, 2)
    assert set(continuity.take_changed()) == {LANE}, "a repeat is counted, so it is stored"
