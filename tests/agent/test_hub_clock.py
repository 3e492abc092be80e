"""What time it is: through jumps of the wall clock, restarts and starts without any clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import CEILING_NS, FLOOR_NS, Quality
from tests.agent.clock_vehicle import DAY, MS, NOW, YEAR, S, Vehicle

jumps = st.one_of(
    st.integers(-30 * S, 30 * S), st.integers(-9 * DAY, 9 * DAY), st.integers(-50 * YEAR, 50 * YEAR)
)


@pytest.mark.parametrize(
    ("wrong", "trust", "quality"),
    [
        (0, "auto", Quality.HOLDOVER),
        (-3 * 3600 * S, "auto", Quality.HOLDOVER),
        (-56 * YEAR, "auto", Quality.UNSET),
        (+40 * YEAR, "auto", Quality.UNSET),
        (0, "no", Quality.UNSET),
        (-56 * YEAR, "yes", Quality.HOLDOVER),
    ],
)
def test_a_wall_clock_is_believed_where_it_can_be_or_as_told(
    wrong: int, trust: str, quality: Quality
) -> None:
    vehicle = Vehicle(wrong, trust=trust)
    clock = vehicle.clock
    assert clock.quality is quality
    assert clock.settled == (quality is Quality.HOLDOVER)
    assert bool(clock.mark) == (quality is Quality.UNSET)
    assert clock.error_ns is None
    if quality is Quality.HOLDOVER:
        assert clock.now_ns() == vehicle.system.now_ns()
        assert clock.system_shift_ns() == 0
    vehicle.sync()
    assert clock.quality is Quality.SYNCED
    assert clock.mark == 0
    assert clock.now_ns() == vehicle.truth
    assert clock.error_ns == pytest.approx(10 * MS, abs=MS)
    assert clock.state().offset_ns == -wrong
    assert clock.system_shift_ns() == -wrong


@given(wrong=jumps, moves=st.lists(st.tuples(jumps, st.integers(0, 5000))))
def test_once_synced_no_jump_of_the_wall_clock_moves_the_time(
    wrong: int, moves: list[tuple[int, int]]
) -> None:
    vehicle = Vehicle(wrong)
    vehicle.sync()
    for jump, seconds in moves:
        vehicle.system.wall_ns += jump
        vehicle.system.advance(seconds)
        assert vehicle.clock.now_ns() == vehicle.truth
        noticed = vehicle.clock.look()
        assert noticed == (jump if abs(jump) >= S // 2 else 0)
        assert vehicle.clock.now_ns() == vehicle.truth


@given(wrong=jumps, moves=st.lists(st.tuples(jumps, st.integers(1, 5000)), max_size=6))
def test_stamps_made_while_unset_are_put_right_to_the_nanosecond(
    wrong: int, moves: list[tuple[int, int]]
) -> None:
    vehicle = Vehicle(wrong, trust="no")
    stamped = []
    for jump, seconds in [(0, 0), *moves]:
        vehicle.system.wall_ns += jump
        vehicle.system.advance(seconds)
        vehicle.clock.look()
        assert vehicle.clock.quality is Quality.UNSET
        stamped.append((vehicle.clock.now_ns(), vehicle.clock.mark, vehicle.truth))
    times = [time for time, _, _ in stamped]
    assert times == sorted(times), "provisional time runs on through every jump"
    assert {mark for _, mark, _ in stamped} == {1}
    vehicle.sync()
    for time, mark, truth in stamped:
        correction = vehicle.clock.correction_of(mark)
        assert correction is not None
        assert (time + correction[0], correction[1]) == (truth, Quality.SYNCED)


@pytest.mark.parametrize("wrong", [-56 * YEAR, 40 * YEAR])
def test_provisional_time_is_never_absurd(wrong: int) -> None:
    vehicle = Vehicle(wrong)
    assert vehicle.clock.now_ns() == FLOOR_NS
    later = vehicle.restart(boot="boot-b", newest_ns=NOW - DAY)
    assert later.now_ns() == NOW - DAY


def test_a_wall_clock_set_right_by_somebody_else_is_believed_and_corrects_as_well() -> None:
    vehicle = Vehicle(-56 * YEAR)
    stamp, mark, truth = vehicle.clock.now_ns(), vehicle.clock.mark, vehicle.truth
    vehicle.system.advance(20)
    vehicle.system.wall_ns += 56 * YEAR
    assert vehicle.clock.mark == mark, "nothing changes but in look"
    assert vehicle.clock.look() == 56 * YEAR
    assert vehicle.clock.quality is Quality.HOLDOVER
    assert vehicle.clock.correction_of(mark) == (truth - stamp, Quality.HOLDOVER)
    # And one that is set wrong again afterwards is not followed.
    vehicle.system.wall_ns -= 30 * YEAR
    vehicle.system.advance(5)
    vehicle.clock.look()
    assert vehicle.clock.quality is Quality.HOLDOVER
    assert vehicle.clock.now_ns() == vehicle.truth


def test_without_answers_synced_becomes_holdover_and_the_error_grows() -> None:
    vehicle = Vehicle(drift_ppm=50)
    vehicle.sync()
    seen = []
    for intervals in (0, 2, 1):
        vehicle.system.advance(intervals * vehicle.config.interval_s)
        seen.append(vehicle.clock.quality)
    assert seen == [Quality.SYNCED, Quality.SYNCED, Quality.HOLDOVER]
    assert vehicle.clock.error_ns == pytest.approx(10 * MS + 2700 * 50_000, rel=0.01)
    vehicle.sync()
    assert vehicle.clock.state().quality is Quality.SYNCED


def test_a_new_process_of_the_same_boot_goes_on_with_the_time_and_the_guess() -> None:
    vehicle = Vehicle(-56 * YEAR)
    before = vehicle.clock.now_ns()
    vehicle.system.advance(60)
    again = vehicle.restart()
    assert (again.mark, again.now_ns()) == (1, before + 60 * S)
    vehicle.sync()
    vehicle.system.wall_ns += 3 * YEAR
    vehicle.system.advance(60)
    synced = vehicle.restart()
    assert synced.quality is Quality.SYNCED
    assert synced.now_ns() == vehicle.truth


def test_a_new_boot_knows_nothing_of_the_last_ones_clock_but_how_to_correct_it() -> None:
    vehicle = Vehicle(-56 * YEAR)
    never = vehicle.clock.mark
    vehicle.restart(boot="boot-b")
    vehicle.system.wall_ns = 0
    stamp, mark = vehicle.clock.now_ns(), vehicle.clock.mark
    truth = vehicle.truth
    vehicle.sync()
    assert mark != never
    third = vehicle.restart(boot="boot-c")
    assert third.mark not in (never, mark, 0)
    assert third.correction_of(never) is None, "nobody will ever know"
    assert third.correction_of(mark) == (truth - stamp, Quality.SYNCED)
    assert third.now_ns() >= truth, "the time that the hub told last boot is past"


def test_a_machine_put_back_from_a_snapshot_is_another_boot() -> None:
    vehicle = Vehicle()
    vehicle.system.advance(1000)
    vehicle.sync()
    vehicle.system.now_s -= 500  # the same boot id, an earlier steady time
    vehicle.system.wall_ns = 0
    again = vehicle.restart()
    assert again.quality is Quality.UNSET
    vehicle.system.advance(600)
    mark = again.mark
    assert vehicle.restart().mark == mark


def test_a_hub_with_no_clock_itself_is_not_believed() -> None:
    vehicle = Vehicle(-56 * YEAR)
    with pytest.raises(ValueError, match="the hub says"):
        vehicle.clock.adopt(ClockSample(0, 5 * S, 5 * S, MS))
    assert vehicle.clock.quality is Quality.UNSET


def test_a_time_that_is_known_to_be_past_moves_provisional_time_on() -> None:
    vehicle = Vehicle(-56 * YEAR)
    clock = vehicle.clock
    first = clock.now_ns(), clock.mark, vehicle.truth
    clock.reach(clock.now_ns() + S // 2)
    assert clock.mark == first[1], "a little is not worth a mark"
    vehicle.system.advance(10)
    clock.reach(NOW - DAY)
    second = clock.now_ns(), clock.mark, vehicle.truth
    assert second[0] == NOW - DAY
    assert second[1] != first[1]
    assert vehicle.restart().mark == second[1]
    vehicle.sync()
    for time, mark, truth in (first, second):
        correction = vehicle.clock.correction_of(mark)
        assert correction is not None
        assert time + correction[0] == truth
    vehicle.clock.reach(NOW + YEAR)
    assert vehicle.clock.now_ns() == vehicle.truth, "who knows the time is not told"


def test_a_clock_that_waits_no_longer_marks_nothing() -> None:
    vehicle = Vehicle(trust="no")
    assert vehicle.clock.mark
    vehicle.clock.release()
    assert vehicle.clock.mark == 0
    assert vehicle.clock.quality is Quality.UNSET


def test_what_must_be_written_is_kept_until_it_is() -> None:
    vehicle = Vehicle(-56 * YEAR)
    first = dict(vehicle.clock.unwritten)
    assert list(first) == [1]
    vehicle.sync()
    vehicle.clock.written(first.values())
    assert list(vehicle.clock.unwritten) == [1], "it has changed meanwhile"
    vehicle.clock.written(list(vehicle.clock.unwritten.values()))
    assert vehicle.clock.unwritten == {}


def test_ten_years_are_the_furthest_that_a_wall_clock_is_believed() -> None:
    assert Vehicle(FLOOR_NS + CEILING_NS - NOW).clock.settled
    assert not Vehicle(FLOOR_NS + CEILING_NS - NOW + 1).clock.settled
    assert not Vehicle(FLOOR_NS - NOW - 1).clock.settled
