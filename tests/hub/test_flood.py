"""What a vehicle may spend, and how long it is kept out when it overdraws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_hub.flood.detector import FORGOTTEN_S, Budget, FloodWatch, Goods
from backhaul_hub.links.leaf_connections import Carried

HONEST, RUDE = "VID-001", "VID-666"
BUDGETS = {
    Goods.MESSAGES: Budget(100, 1000),
    Goods.BYTES: Budget(1000, 10_000),
    Goods.QUESTIONS: Budget(10, 50),
    Goods.UNREADABLE: Budget(1, 5),
}


@pytest.fixture
def watch() -> FloodWatch:
    return FloodWatch(BUDGETS, 700, 60, 3600)


def ask(watch: FloodWatch, count: int, now_s: float, device: str = RUDE) -> int:
    """Ask so often; return how many questions may be answered."""
    return sum(watch.spend(device, Goods.QUESTIONS, 1, now_s) for _ in range(count))


def test_a_budget_holds_so_much_and_refills(watch: FloodWatch) -> None:
    assert ask(watch, 50, 0) == 50
    assert ask(watch, 30, 3) == 30
    assert not watch.suspended(RUDE, 3)
    assert ask(watch, 1, 3) == 0
    assert watch.suspended(RUDE, 3)


def test_who_overdraws_is_kept_out_and_nobody_else(watch: FloodWatch) -> None:
    assert ask(watch, 200, 0) == 50
    assert ask(watch, 50, 0, HONEST) == 50
    assert list(watch.all_suspended(0)) == [RUDE]
    assert list(watch.lately(10)) == [(RUDE, "51 questions at once: kept out for 50 s more")]
    assert watch.suspended(RUDE, 59.9)
    assert not watch.suspended(RUDE, 60)


def test_after_its_time_a_device_begins_anew(watch: FloodWatch) -> None:
    ask(watch, 10_000, 0)
    assert ask(watch, 50, 60) == 50
    assert list(watch.lately(60)) == [(RUDE, "51 questions at once: kept out until 0 s ago")]
    assert list(watch.lately(60 + FORGOTTEN_S)) == []


def test_each_time_is_twice_as_long_up_to_a_limit(watch: FloodWatch) -> None:
    now_s, lengths = 0.0, []
    for _ in range(8):
        ask(watch, 51, now_s)
        length_s = watch.all_suspended(now_s)[RUDE].until_s - now_s
        lengths.append(length_s)
        now_s += length_s
    assert lengths == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    now_s += FORGOTTEN_S
    ask(watch, 51, now_s)
    assert watch.all_suspended(now_s)[RUDE].until_s == now_s + 60


def test_what_a_link_has_carried_counts_by_its_growth(watch: FloodWatch) -> None:
    watch.carried(RUDE, {1: Carried(900, 0)}, 0)
    watch.carried(RUDE, {1: Carried(1000, 0)}, 1)
    assert not watch.suspended(RUDE, 1)
    watch.carried(RUDE, {2: Carried(90, 0)}, 1)
    assert not watch.suspended(RUDE, 1), "a new connection begins at 0"
    watch.carried(RUDE, {2: Carried(300, 0)}, 1)
    assert watch.suspended(RUDE, 1)
    # While the server has not cut it yet the count grows, and that is no second offence.
    watch.carried(RUDE, {2: Carried(100_000, 0)}, 2)
    watch.carried(RUDE, {2: Carried(100_000, 0)}, 61)
    assert not watch.suspended(RUDE, 61)


def test_a_link_is_judged_by_its_bytes_too(watch: FloodWatch) -> None:
    watch.carried(RUDE, {1: Carried(1, 10_001)}, 0)
    assert list(watch.lately(0)) == [(RUDE, "10,001 bytes at once: kept out for 60 s more")]


def test_who_has_all_the_subscriptions_there_are_is_kept_out(watch: FloodWatch) -> None:
    watch.carried(RUDE, {1: Carried(subscriptions=699)}, 0)
    assert not watch.suspended(RUDE, 0)
    for now_s in (1, 2):
        watch.carried(RUDE, {1: Carried(subscriptions=700)}, now_s)
    assert list(watch.lately(2)) == [(RUDE, "700 subscriptions: kept out for 59 s more")]


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), max_size=60))
def test_who_stays_below_the_steady_rate_is_never_kept_out(
    steps: list[tuple[float, int]],
) -> None:
    watch, now_s = FloodWatch(BUDGETS, 700, 60, 3600), 0.0
    for pause_s, count in steps:
        now_s += max(pause_s, count / 10)
        assert ask(watch, count, now_s, HONEST) == count


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 200)), max_size=60))
def test_nobody_gets_more_than_the_budget(steps: list[tuple[float, int]]) -> None:
    watch, now_s, had = FloodWatch(BUDGETS, 700, 60, 3600), 0.0, 0
    for pause_s, count in steps:
        now_s += pause_s
        had += ask(watch, count, now_s)
        # A suspension begins a new budget: at most one full one for every 60 s.
        assert had <= 50 + 10 * now_s + 50 * (now_s // 60) + 1
