"""A hub whose clock is set: not followed on one answer, and followed in the end."""

from __future__ import annotations

import pytest

from backhaul_agent.config import ClockConfig
from backhaul_agent.hub_time.estimator import ClockSample, StepGuard
from backhaul_agent.hub_time.hub_clock import HubClock, Quality
from tests.agent.clock_vehicle import DAY, MS, Vehicle

S = 10**9
CONFIRM_S = ClockConfig().step_confirm_s


class Fleet(Vehicle):
    """A vehicle whose wall clock says nothing, and a hub whose clock can be set."""

    def __init__(self, *, wall: bool = False) -> None:
        super().__init__(0 if wall else -40 * 365 * DAY, drift_ppm=50.0)
        self.true_anchor = self.anchor

    @property
    def off(self) -> int:
        """By how much the vehicle's time is wrong."""
        return self.clock.now_ns() - (self.system.steady_ns() + self.true_anchor)

    def hub_is_off_by(self, ns: int) -> None:
        self.anchor = self.true_anchor + ns

    def asks(self, seconds: float, every_s: float = 60.0) -> None:
        for _ in range(int(seconds / every_s)):
            self.system.advance(every_s)
            self.sync()


@pytest.mark.parametrize("step", [DAY, -DAY, 11 * S, -11 * S])
def test_a_step_of_the_hubs_clock_that_comes_back_is_never_followed(step: int) -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.hub_is_off_by(step)
    for _ in range(4):  # a link that bounces: four answers each time
        vehicle.sync()
        vehicle.sync()
        vehicle.system.advance(30)
        assert abs(vehicle.off) < S
        state = vehicle.clock.state()
        assert state.quality is Quality.HOLDOVER, "not certain while the hub contradicts"
        assert state.step_ns == pytest.approx(step, abs=S)
    vehicle.hub_is_off_by(0)
    vehicle.sync()
    assert vehicle.clock.state().step_ns is None
    assert vehicle.clock.quality is Quality.SYNCED
    assert vehicle.clock.steps.adopted == 0
    assert abs(vehicle.off) < S


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_step_that_stays_is_followed_after_a_while_and_the_way_back_at_once(step: int) -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.hub_is_off_by(step)
    vehicle.asks(CONFIRM_S - 60)
    assert abs(vehicle.off) < S
    vehicle.asks(180)
    assert vehicle.off == pytest.approx(step, abs=S)
    assert vehicle.clock.quality is Quality.SYNCED
    vehicle.hub_is_off_by(0)
    vehicle.sync()
    assert vehicle.off == pytest.approx(step, abs=S), "one look is not enough even so"
    vehicle.asks(20, every_s=10.0)
    assert abs(vehicle.off) < S, "what was known before the step is a witness"


def test_many_answers_in_a_moment_are_no_confirmation() -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.hub_is_off_by(DAY)
    for _ in range(100):
        vehicle.sync()
    assert abs(vehicle.off) < S


def test_answers_that_contradict_each_other_confirm_nothing() -> None:
    vehicle = Fleet()
    vehicle.sync()
    for number in range(60):
        vehicle.hub_is_off_by(DAY * (1 + number % 2))
        vehicle.asks(60)
    assert abs(vehicle.off) < S


def test_a_wall_clock_that_says_the_same_is_a_witness() -> None:
    vehicle = Fleet(wall=True)
    vehicle.hub_is_off_by(DAY)
    vehicle.sync()  # the first word of any hub: nothing but the wall clock contradicts it
    assert vehicle.off == pytest.approx(DAY, abs=S)
    vehicle.hub_is_off_by(0)
    vehicle.sync()
    assert vehicle.off == pytest.approx(DAY, abs=S)
    vehicle.asks(20, every_s=10.0)
    assert abs(vehicle.off) < S


def test_a_process_that_begins_anew_in_the_same_boot_is_as_careful() -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.restart()
    vehicle.hub_is_off_by(DAY)
    vehicle.sync()
    assert abs(vehicle.off) < S


def test_a_hub_that_is_behind_what_it_told_in_an_earlier_boot_is_not_believed_at_once() -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.restart(boot="boot-b")
    right = vehicle.anchor
    vehicle.anchor -= 20 * DAY
    vehicle.sync()
    assert vehicle.clock.quality is Quality.UNSET
    assert vehicle.clock.state().step_ns == pytest.approx(-10 * DAY, abs=60 * S)
    vehicle.anchor = right
    vehicle.sync()
    assert vehicle.clock.now_ns() == pytest.approx(vehicle.truth, abs=S)


def test_a_clock_that_is_only_slewed_is_followed() -> None:
    vehicle = Fleet()
    vehicle.sync()
    for number in range(20):
        vehicle.hub_is_off_by(number * 9 * S)
        vehicle.sync()
        assert vehicle.off == pytest.approx(number * 9 * S, abs=S)


def test_a_long_time_without_the_hub_allows_for_what_clocks_drift() -> None:
    vehicle = Fleet()
    vehicle.sync()
    vehicle.system.advance(10 * 86_400)
    vehicle.hub_is_off_by(round(10 * 86_400 * 50e-6 * S) + 9 * S)
    vehicle.sync()
    assert vehicle.clock.quality is Quality.SYNCED


def test_the_guard_says_how_long_it_waits() -> None:
    guard = StepGuard(10.0, 600.0)
    assert guard.confirms_in_ns(0) == 0
    sample = ClockSample(0, DAY, DAY, MS)
    assert not guard.believes(sample, 0, MS)
    assert guard.confirms_in_ns(100 * S) == pytest.approx(500 * S, abs=S)
    assert guard.believes(replace_t2(sample, 0), 0, MS)
    assert guard.step is None


def replace_t2(sample: ClockSample, t2: int) -> ClockSample:
    return sample._replace(t2=t2, t3=t2)


def test_max_step_is_of_the_configuration() -> None:
    vehicle = Fleet()
    vehicle.config = ClockConfig(max_step_s=3600.0)
    vehicle.clock = HubClock(vehicle.system, vehicle.config)
    vehicle.clock.start("boot-a", [])
    vehicle.sync()
    vehicle.hub_is_off_by(1800 * S)
    vehicle.sync()
    assert vehicle.off == pytest.approx(1800 * S, abs=S)
