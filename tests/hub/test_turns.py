"""Two machines with one identity online at once: who stays away, and for how long."""

from __future__ import annotations

from backhaul_hub.vehicles.turns import TOGETHER_S, TURN_S, Turns, Who

A, B = ("aa", "a1", "r1"), ("bb", "b1", "r2")
RESTARTED = ("aa", "a1", "r9")


def test_one_that_is_restarted_or_replaced_is_told_nothing() -> None:
    turns = Turns()
    for at_s, who in enumerate((A, A, RESTARTED, RESTARTED, B, B)):
        assert turns.hear("VID-007", who, float(at_s)) == 0


def test_two_that_alternate_slowly_are_not_online_at_once() -> None:
    turns = Turns()
    for number, who in enumerate((A, B, A, B, A)):
        assert turns.hear("VID-007", who, number * TOGETHER_S) == 0


def test_they_take_turns_and_both_get_one() -> None:
    turns, away_s, had = Turns(), {A: 0.0, B: 0.0}, dict[Who, float]({A: 0.0, B: 0.0})
    step_s = 0.5
    for step in range(400):
        now_s = step * step_s
        there = [who for who in (A, B) if now_s >= away_s[who]]
        for who in there:
            yield_s = turns.hear("VID-007", who, now_s)
            assert 0 <= yield_s <= TURN_S
            away_s[who] = now_s + yield_s
        if len(there) == 1:
            had[there[0]] += step_s
    assert min(had.values()) > 80
    assert turns.hear("VID-008", A, 1.0) == 0


def test_the_one_that_is_left_has_the_link_for_itself() -> None:
    turns = Turns()
    for at_s, who in enumerate((A, B, A, B)):
        turns.hear("VID-007", who, float(at_s))
    for at_s in range(10, 200, 5):
        assert turns.hear("VID-007", A, float(at_s)) == 0
