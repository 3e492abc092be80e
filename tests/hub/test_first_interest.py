"""When a vehicle that has logged in can be asked for its lanes."""

from __future__ import annotations

from backhaul_hub.links.first_interest import WAIT_S_MAX, FirstInterest

VID, OTHER = "VID-001", "VID-002"


def test_a_device_is_waited_for_until_its_server_counts_what_it_listens_to() -> None:
    first = FirstInterest()
    first.connected(VID, 10.0)
    first.connected(OTHER, 10.0)
    assert first.counted({VID: 0}, 10.1) == []
    assert first.counted({VID: 9, OTHER: 0}, 10.2) == [VID]
    assert list(first.awaited) == [OTHER]


def test_one_that_says_nothing_is_not_waited_for_for_ever() -> None:
    first = FirstInterest()
    first.connected(VID, 10.0)
    assert first.counted({}, 10.0 + WAIT_S_MAX - 0.1) == []
    assert first.counted({}, 10.0 + WAIT_S_MAX) == [VID]


def test_one_that_connects_again_is_waited_for_anew() -> None:
    first = FirstInterest()
    first.connected(VID, 10.0)
    first.connected(VID, 14.0)
    assert first.counted({}, 10.0 + WAIT_S_MAX) == []


def test_a_word_of_its_own_ends_the_wait_once() -> None:
    first = FirstInterest()
    first.connected(VID, 10.0)
    assert first.heard(VID)
    assert not first.heard(VID)
    assert first.counted({VID: 9}, 10.1) == []


def test_looks_are_quick_at_first_and_take_a_small_part_of_a_busy_server() -> None:
    first = FirstInterest()
    assert first.look_in_s(0.0, 10.0) is None
    first.connected(VID, 10.0)
    assert first.look_in_s(0.0, 10.0) == 0.01
    assert first.look_in_s(0.0, 10.5) == 0.25
    assert first.look_in_s(0.0, 14.0) == 0.25
    assert first.look_in_s(0.1, 10.0) == 2.0, "a list of many leafs"
