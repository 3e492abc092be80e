"""The estimator: its error is honest on any link, and small on a good one."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backhaul_agent.hub_time.estimator import SAMPLES_MAX, ClockSample, Estimate, Estimator

MS, S = 10**6, 10**9
PPM = 50.0
delays = st.integers(0, 60 * S)
anchors = st.integers(-(2**61), 2**61)


class Clocks:
    """A hub whose time is the steady time plus an anchor that drifts."""

    def __init__(self, anchor: int, ppm: float = 0.0) -> None:
        self.anchor0, self.ppm = anchor, ppm

    def anchor(self, steady: int) -> int:
        return self.anchor0 + round(steady * self.ppm / 1e6)

    def exchange(self, at: int, up: int, hub: int, down: int) -> ClockSample:
        arrived, left = at + up, at + up + hub
        back = left + down
        return ClockSample(at, arrived + self.anchor(arrived), left + self.anchor(left), back)


@given(
    anchor=anchors,
    ppm=st.floats(-PPM, PPM),
    links=st.lists(st.tuples(delays, delays, delays, delays), min_size=1, max_size=12),
    later=st.integers(0, 86_400 * S),
)
def test_the_true_time_is_always_within_the_error(
    anchor: int, ppm: float, links: list[tuple[int, int, int, int]], later: int
) -> None:
    clocks, estimator, now = Clocks(anchor, ppm), Estimator(PPM), 1000 * S
    for pause, up, hub, down in links:
        sample = clocks.exchange(now + pause, up, hub, down)
        estimator.add(sample)
        now = sample.t4
    now += later
    estimate = estimator.estimate(now)
    assert estimate is not None
    assert abs(estimate.anchor_ns - clocks.anchor(now)) <= estimate.error_ns + 1


@given(up=delays, hub=delays, down=delays)
def test_one_exchange_is_wrong_by_half_its_round_trip_at_most_and_says_so(
    up: int, hub: int, down: int
) -> None:
    estimator = Estimator(0.0)
    sample = Clocks(5 * S).exchange(0, up, hub, down)
    estimator.add(sample)
    estimate = estimator.estimate(sample.t4)
    assert estimate is not None
    assert estimate.error_ns - (up + down) / 2 <= 3
    assert abs(estimate.anchor_ns - 5 * S - (up - down) / 2) <= 3, "NTP's offset"


def test_on_a_lopsided_link_quick_exchanges_narrow_what_slow_ones_allow() -> None:
    clocks, estimator = Clocks(10**18), Estimator(PPM)
    for at, up, down in ((0, 4 * S, 50 * MS), (5 * S, 300 * MS, 300 * MS), (6 * S, 3 * S, 20 * MS)):
        estimator.add(clocks.exchange(at, up, MS, down))
    estimate = estimator.estimate(10 * S)
    assert estimate is not None
    # At most 300 ms early (the second's way up), at most 20 ms late (the third's way down).
    assert estimate.error_ns < 161 * MS
    assert abs(estimate.anchor_ns - 10**18) <= estimate.error_ns


def test_the_error_grows_with_age() -> None:
    estimator = Estimator(PPM)
    estimator.add(Clocks(0).exchange(0, 10 * MS, 0, 10 * MS))
    young, old = estimator.estimate(20 * MS), estimator.estimate(86_400 * S)
    assert young is not None
    assert old is not None
    assert young.error_ns < 11 * MS
    assert 4 * S < old.error_ns < 5 * S, "50 ppm are 4.3 s a day"
    assert young.error_at(86_400 * S, PPM) == pytest.approx(old.error_ns, abs=MS)


def test_a_hub_whose_clock_was_set_is_believed_again_at_once() -> None:
    estimator = Estimator(PPM)
    for number in range(SAMPLES_MAX):
        estimator.add(Clocks(0).exchange(number * S, MS, 0, MS))
    estimator.add(Clocks(3600 * S).exchange(100 * S, MS, 0, MS))
    estimate = estimator.estimate(101 * S)
    assert estimate is not None
    assert abs(estimate.anchor_ns - 3600 * S) <= estimate.error_ns < 2 * MS


def test_an_earlier_process_of_the_boot_is_remembered() -> None:
    estimator = Estimator(PPM)
    assert estimator.estimate(0) is None
    estimator.restore(Estimate(7 * S, 2 * MS, 100 * S))
    estimate = estimator.estimate(100 * S)
    assert estimate is not None
    assert estimate.anchor_ns == 7 * S
    assert 2 * MS <= estimate.error_ns <= 2 * MS + 2


@given(times=st.tuples(*[st.integers(-(2**70), 2**70)] * 4))
def test_impossible_times_are_refused_and_change_nothing(times: tuple[int, int, int, int]) -> None:
    sample = ClockSample(*times)
    assume(sample.t4 < sample.t1 or sample.t3 < sample.t2 or max(map(abs, times)) >= 2**63)
    estimator = Estimator(PPM)
    with pytest.raises(ValueError, match=r"64 bits|before"):
        estimator.add(sample)
    assert estimator.estimate(0) is None


def test_a_hub_that_took_longer_than_the_whole_exchange_is_not_believed() -> None:
    with pytest.raises(ValueError, match="longer"):
        Estimator(PPM).add(ClockSample(0, 0, 10 * S, 9 * S))
