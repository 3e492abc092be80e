"""Which word of a vehicle's is in force where."""

from __future__ import annotations

from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.sync.device_knowledge import Words

LIVE = LaneKey("VID-001", "live", 7)


def test_the_last_before_a_place_is_in_force_there() -> None:
    words: Words[int] = Words()
    for seq, said in ((3, 30), (9, 90)):
        assert words.add(LIVE, seq, said)
    assert not words.add(LIVE, 9, 90), "a repeat is no news"
    assert [words.at(LIVE, seq, 0) for seq in (2, 3, 8, 9, 50)] == [0, 30, 30, 90, 90]


def test_a_talkative_lane_does_not_push_out_what_others_said() -> None:
    """Else a write on a quiet lane would be judged by what another lane knew later."""
    words: Words[int] = Words()
    lanes = [LIVE._replace(lane=f"n_{number}") for number in range(64)]
    for number, lane in enumerate(lanes):
        words.add(lane, 1, number)
    for seq in range(1, 200):
        words.add(LIVE, seq, 1000 + seq)
    assert [words.at(lane, 2, -1) for lane in lanes] == list(range(64))
    assert words.at(LIVE, 500, -1) == 1199
    assert len(words.words) <= 64 + 1 + 16


def test_what_is_kept_has_a_limit() -> None:
    words: Words[int] = Words()
    for epoch in range(1, 500):
        words.add(LIVE._replace(epoch=epoch), 1, epoch)
    assert len(words.words) == 128
    assert words.at(LIVE._replace(epoch=499), 1, 0) == 499
