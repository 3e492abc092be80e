"""A hub's clock that is set, and vehicles that went by it: both ends come to the same heads."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.two_ends import SERIES, TwoEnds

DAY = 86_400 * 10**9
RATE, MODE, IMU = SERIES
SEEDS = 300


@pytest.fixture
def ends() -> TwoEnds:
    return TwoEnds()


def follow(ends: TwoEnds, off_ns: int) -> None:
    """Set the hub's clock, and have the vehicle go by it."""
    ends.set_hub(off_ns)
    ends.vehicle_off_ns = off_ns


def write_all(ends: TwoEnds) -> None:
    """Write every series from each side in turn: what is written last stands at both ends."""
    for key in SERIES:
        for value, write in enumerate([ends.hub_writes, ends.vehicle_writes, ends.hub_writes]):
            ends.wait(5)
            write(100.0 + value, key)
            ends.rest()
            assert ends.value(key) == 100.0 + value
    ends.wait(5)
    ends.vehicle_writes(200.0, RATE, MODE)
    ends.rest()
    assert (ends.value(RATE), ends.value(MODE)) == (200.0, 200.0)


@pytest.mark.parametrize("off_ns", [DAY, -DAY])
def test_a_vehicles_write_stands_after_the_hub_wrote_with_a_wrong_clock(
    ends: TwoEnds, off_ns: int
) -> None:
    ends.vehicle_writes(1.0, RATE, MODE)
    ends.rest()
    ends.set_hub(off_ns)
    ends.hub_writes(3.0, RATE)
    ends.rest()
    ends.set_hub(0)
    ends.vehicle_writes(9.0, RATE)
    ends.rest()
    assert ends.value(RATE) == 9.0
    write_all(ends)


@pytest.mark.parametrize("off_ns", [DAY, -DAY])
def test_a_vehicle_that_went_by_a_wrong_hub_writes_on(ends: TwoEnds, off_ns: int) -> None:
    ends.hub_writes(1.0, RATE)
    ends.rest()
    follow(ends, off_ns)
    ends.vehicle_writes(9.0, RATE)
    ends.rest()
    ends.hub_writes(2.0, MODE)
    ends.set_hub(0)
    ends.vehicle_writes(10.0, RATE)
    ends.rest()
    assert ends.value(RATE) == 10.0
    ends.vehicle_off_ns = 0
    write_all(ends)


def test_a_state_that_was_published_by_a_wrong_clock_gives_way_to_the_next(ends: TwoEnds) -> None:
    follow(ends, DAY)
    ends.vehicle_states(1.0, RATE)
    ends.rest()
    follow(ends, 0)
    for value in (2.0, 3.0):
        ends.wait(5)
        ends.vehicle_states(value, RATE)
        ends.rest()
        assert ends.value(RATE) == value
    ends.reads_in_again()
    ends.rest()
    assert ends.value(RATE) == 3.0


def test_one_stamp_from_the_future_holds_up_no_other_of_its_node(ends: TwoEnds) -> None:
    """What the vehicle sends of a node that differs is one message, and its stamps are many."""
    follow(ends, DAY)
    ends.vehicle_writes(1.0, MODE)
    ends.goes_up()
    ends.up.clear()
    follow(ends, 0)
    ends.vehicle_states(5.0, RATE)
    ends.up.clear()  # lost for good: it is in the heads alone
    ends.hub.core.heads.of("VID-001").heads._nodes.clear()
    ends.hub.core.heads.of("VID-001").heads._digests.clear()
    ends.rest()
    assert ends.value(RATE) == 5.0
    assert ends.value(MODE) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_the_clocks_did_both_ends_come_to_the_same(seed: int) -> None:
    random, ends, number = Random(seed), TwoEnds(), 0.0
    link = True
    for _ in range(random.randint(5, 60)):
        ends.wait(random.choice([0.0, 1.0, 30.0, 3600.0]))
        number += 1
        keys = random.choice([[RATE], [MODE], [IMU], [RATE, MODE]])
        match random.randint(0, 11):
            case 0 | 1:
                ends.hub_writes(number, *keys)
            case 2 | 3:
                ends.vehicle_writes(number, *keys)
            case 4:
                ends.vehicle_states(number, keys[0])
            case 5:
                ends.set_hub(random.choice([0, DAY, -DAY, 20 * DAY, 3600 * 10**9]))
            case 6:
                ends.vehicle_off_ns = ends.hub_off_ns
            case 7:
                ends.hub.crash()
            case 8:
                ends.reads_in_again()
            case 9:
                link = not link
                if link:
                    ends.link_comes()
            case _ if link:
                ends.goes_up(random.choice([1, 3, None]))
                if random.random() < 0.7:
                    ends.comes_down()
    ends.set_hub(0)
    ends.rest()
    ends.vehicle_off_ns = 0  # from which on a vehicle compares once more
    ends.rest()
    assert ends.split() == {}
    write_all(ends)
    assert ends.hub.core.peer("VID-001").in_sync
