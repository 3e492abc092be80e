"""What is found in a fleet, how it is named, and that sound vehicles are left alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from backhaul_spark.fleet.clocks import WrongClock
from backhaul_spark.fleet.cohorts import Cohorts
from backhaul_spark.fleet.findings import Coverage, FleetFinding
from backhaul_spark.fleet.judge import Judge
from backhaul_spark.fleet.readings import Cells, Signal
from tests.support.fleet_rollups import (
    CABIN,
    DAY,
    MOTOR,
    SIGNALS,
    SOC,
    SimulatedFleet,
    days_before,
)

pytestmark = pytest.mark.slow

FULL = Coverage(24, 24, 24)


def past_of(fleet: SimulatedFleet, signal: Signal, days: int) -> Cells | None:
    if not days:
        return None
    found = [fleet.cells(signal, day, "1d") for day in days_before(days)]
    return Cells(
        np.hstack([each.level for each in found]),
        np.hstack([each.spread for each in found]),
        np.hstack([each.fall for each in found]),
        np.hstack([each.count for each in found]),
    )


def judged(fleet: SimulatedFleet, *, days: int = 0, hour: int | None = None) -> Judge:
    cohorts = Cohorts(fleet.names, fleet.models, fleet.firmwares)
    judge = Judge(cohorts, [FULL] * fleet.devices, len(SIGNALS), ["battery.soc"])
    for signal in SIGNALS:
        cells = fleet.cells(signal, DAY)
        if hour is not None:
            kept = slice(hour, hour + 1)
            level, spread, fall = (
                each[:, kept] for each in (cells.level, cells.spread, cells.fall)
            )
            cells = Cells(level, spread, fall, cells.count[:, kept])
        judge.take(signal, cells, past_of(fleet, signal, days))
    return judge


def named(findings: list[FleetFinding]) -> dict[str, FleetFinding]:
    return {found.device: found for found in findings if found.device}


@pytest.mark.parametrize("tails", [None, 3.0, 2.2], ids=["normal", "t3", "t2.2"])
def test_sound_vehicles_are_left_alone_however_heavy_the_tails_of_their_noise(
    tails: float | None,
) -> None:
    """No more than one in a thousand, over seeds, by the day and by the hour, with and without past."""
    fleets = [SimulatedFleet(500, seed, tails) for seed in range(3)]
    found = [judged(fleet).findings() for fleet in fleets]
    found.append(judged(fleets[1], hour=7).findings())
    found.append(judged(fleets[0], days=2).findings())
    false = sum(len({each.device for each in findings}) for findings in found)
    assert false <= 0.001 * 500 * len(found)


def test_small_fleets_have_no_false_alarms_either() -> None:
    found = [judged(SimulatedFleet(60, seed, 3.0)).findings() for seed in range(6)]
    assert sum(map(len, found)) <= 1


def test_planted_faults_are_found_and_named() -> None:
    fleet = SimulatedFleet(1000, 5, stuck=(1,), drifting=(2, 3), draining=range(10, 70))
    findings = judged(fleet).findings()
    assert {name: found.kind for name, found in named(findings).items()} == {
        "SIM-000001": "stuck",
        "SIM-000002": "drift",
        "SIM-000003": "drift",
    }
    firmware = [found for found in findings if not found.device]
    assert {(found.kind, found.firmware, found.signal) for found in firmware} == {
        ("firmware", "4.2", SOC)
    }
    assert {found.model for found in firmware} == {"VAN-1", "VAN-2", "TRUCK-1"}
    assert "cabin.temp sticks at" in named(findings)["SIM-000001"].text
    assert "cabin.temp drifts up by 0.4" in named(findings)["SIM-000002"].text
    for found in firmware:
        assert "times faster on firmware 4.2 than on 2 other firmwares of model" in found.text
        assert found.value is not None
        assert found.expected is not None
        assert 2.5 < found.value / found.expected < 3.5


@pytest.mark.parametrize("size", [20, 60, 200])
def test_a_firmware_of_five_vehicles_that_falls_three_times_faster_is_one_finding(
    size: int,
) -> None:
    for seed in range(4):
        fleet = SimulatedFleet(size, seed, draining=range(5))
        fleet.models = ["VAN-1"] * size
        [found] = judged(fleet).findings()
        assert (found.kind, found.device, found.firmware, found.signal) == (
            *("firmware", "", "4.2"),
            SOC,
        )
        assert "times faster on firmware 4.2 than on 2 other firmwares of model VAN-1" in found.text
        assert f"(5 vehicles against {size - 5})" in found.text


@pytest.mark.parametrize("tails", [None, 3.0, 2.2], ids=["normal", "t3", "t2.2"])
def test_a_firmware_of_few_sound_vehicles_is_left_alone_however_heavy_the_tails(
    tails: float | None,
) -> None:
    """Forty firmwares of four to seven vehicles in each of ten fleets, five signals each."""
    false = 0
    for seed in range(10):
        fleet = SimulatedFleet(240, seed, tails)
        fleet.models = ["VAN-1"] * 240
        firmware = 0
        dice = np.random.default_rng(seed)
        at = 0
        while at < 220:
            few = int(dice.integers(4, 8))
            fleet.firmwares[at : at + few] = [f"5.{firmware}"] * len(fleet.firmwares[at : at + few])
            at, firmware = at + few, firmware + 1
        false += sum(1 for found in judged(fleet).findings() if found.kind == "firmware")
    assert false == 0


def test_a_firmware_of_few_is_only_named_if_every_one_of_them_falls_faster() -> None:
    fleet = SimulatedFleet(60, 1, draining=range(5))
    fleet.models = ["VAN-1"] * 60
    fleet._drain[3] /= 3
    assert [found for found in judged(fleet).findings() if found.kind == "firmware"] == []


def test_one_vehicle_that_drains_is_compared_with_its_firmware() -> None:
    fleet = SimulatedFleet(400, 6)
    fleet._drain[4] *= 3
    [found] = judged(fleet).findings()
    assert (found.device, found.kind) == ("SIM-000004", "drain")
    assert "battery.soc falls" in found.text
    assert f"peers (model {fleet.models[4]}, firmware {fleet.firmwares[4]})" in found.text
    assert (
        found.peers
        == Counter(zip(fleet.models, fleet.firmwares, strict=True))[
            fleet.models[4], fleet.firmwares[4]
        ]
        - 1
    )


def test_a_firmware_of_few_vehicles_is_compared_with_the_model() -> None:
    fleet = SimulatedFleet(400, 6, draining=(4, 5))
    found = named(judged(fleet).findings())
    assert {name: each.cohort for name, each in found.items()} == {
        f"SIM-{number:06d}": f"model {fleet.models[number]}" for number in (4, 5)
    }


def test_a_model_of_one_is_compared_with_the_fleet() -> None:
    fleet = SimulatedFleet(400, 6)
    fleet.models[4], fleet.firmwares[4] = "PROTOTYPE", "9"
    fleet._drain[4] *= 3
    [found] = judged(fleet).findings()
    assert (found.device, found.cohort, found.peers) == ("SIM-000004", "the whole fleet", 399)


def test_a_slow_drift_shows_against_a_vehicles_own_past() -> None:
    """Half a degree a day is nothing against what vehicles differ by; it is against the days before."""
    fleet = SimulatedFleet(400, 7)
    cohorts = Cohorts(fleet.names, fleet.models, fleet.firmwares)
    cells, past = fleet.cells(CABIN, DAY), past_of(fleet, CABIN, 5)
    cells.level[9] += 0.5
    alone = Judge(cohorts, [FULL] * 400, 5, [])
    alone.take(CABIN, cells, None)
    assert alone.findings() == []
    judge = Judge(cohorts, [FULL] * 400, 5, [])
    judge.take(CABIN, cells, past)
    [found] = judge.findings()
    assert (found.device, found.kind) == ("SIM-000009", "drift")
    assert found.value == pytest.approx(0.5, abs=0.1)
    assert "cabin.temp drifts: it has moved up by" in found.text


def test_what_stood_still_before_is_no_sensor_that_sticks_today() -> None:
    fleet = SimulatedFleet(400, 8, stuck=(1,))
    past = past_of(fleet, CABIN, 3)
    assert past is not None
    past.spread[1, 1] = 0
    cohorts = Cohorts(fleet.names, fleet.models, fleet.firmwares)
    judge = Judge(cohorts, [FULL] * 400, 5, [])
    judge.take(CABIN, fleet.cells(CABIN, DAY), past)
    assert "stuck" not in {found.kind for found in judge.findings()}


def stuck_since(days: int, *, moved_between: bool = False) -> set[str]:
    """Judge a fleet with a sensor that has stood still for `days` of the 5 before."""
    fleet = SimulatedFleet(400, 8, stuck=(1,))
    past, cells = past_of(fleet, CABIN, 5), fleet.cells(CABIN, DAY)
    assert past is not None
    past.spread[1, 5 - days :] = 0
    if moved_between:
        past.spread[1, 4] = 2.0
    cells.spread[1], cells.level[1] = 0.0, 21.0
    judge = Judge(Cohorts(fleet.names, fleet.models, fleet.firmwares), [FULL] * 400, 5, [])
    judge.take(CABIN, cells, past)
    judge.take(MOTOR, fleet.cells(MOTOR, DAY), past_of(fleet, MOTOR, 5))
    return {found.device for found in judge.findings() if found.kind == "stuck"}


def test_a_sensor_that_sticks_is_named_every_day_and_not_only_on_the_first() -> None:
    assert stuck_since(1) == stuck_since(4) == {"SIM-000001"}
    assert stuck_since(4, moved_between=True) == set()
    assert stuck_since(5) == set()  # nobody knows that it ever moved


@pytest.mark.parametrize("settings", [0, 6])
def test_what_hardly_any_vehicle_changes_says_nothing_about_rest(settings: int) -> None:
    """Where six signals are settings a vehicle that drives was taken for one in a garage."""
    fleet = SimulatedFleet(400, 8, stuck=(1,))
    judge = Judge(Cohorts(fleet.names, fleet.models, fleet.firmwares), [FULL] * 400, 9, [])
    for signal in (CABIN, MOTOR):
        judge.take(signal, fleet.cells(signal, DAY), None)
    for number in range(settings):
        cells = fleet.cells(MOTOR, DAY)
        cells.level[:], cells.spread[:], cells.fall[:] = 7.0, 0.0, 0.0
        judge.take(Signal("config", f"limit_{number}"), cells, None)
    assert [(each.device, each.kind) for each in judge.findings()] == [("SIM-000001", "stuck")]


def test_the_only_signal_of_a_vehicle_speaks_for_itself_where_it_never_rests_in_anyone() -> None:
    fleet = SimulatedFleet(400, 8, stuck=(1,))
    cells = fleet.cells(CABIN, DAY)
    cells.spread[1], cells.level[1] = 0.0, 21.0

    def judge() -> set[str]:
        judge = Judge(Cohorts(fleet.names, fleet.models, fleet.firmwares), [FULL] * 400, 1, [])
        judge.take(CABIN, cells, None)
        return {found.device for found in judge.findings() if found.kind == "stuck"}

    assert judge() == {"SIM-000001"}
    cells.spread[2:, 3:5] = 0  # by night everybody's stands still
    cells.level[2:, 3:5] = 21.0
    assert judge() == set()


def test_a_signal_that_does_not_say_who_moves_is_not_taken_off_those_that_do() -> None:
    """A set temperature changes from hour to hour, and within none."""
    fleet = SimulatedFleet(400, 8)
    cells = fleet.cells(CABIN, DAY)
    cells.spread[:], cells.fall[:] = 0.0, 0.0
    cells.level[:] = 20.0 + np.arange(24) % 2
    cells.level[1] = 21.0
    judge = Judge(Cohorts(fleet.names, fleet.models, fleet.firmwares), [FULL] * 400, 5, [])
    judge.take(CABIN, cells, None)
    judge.take(MOTOR, fleet.cells(MOTOR, DAY), None)
    assert [each.device for each in judge.findings() if each.kind == "stuck"] == ["SIM-000001"]


def test_a_vehicle_at_rest_has_no_sensor_that_sticks() -> None:
    fleet = SimulatedFleet(400, 8)
    judge = Judge(Cohorts(fleet.names, fleet.models, fleet.firmwares), [FULL] * 400, 5, [])
    for signal in SIGNALS:
        cells = fleet.cells(signal, DAY)
        cells.spread[7] = 0
        cells.level[7] = cells.level[7, 0]
        judge.take(signal, cells, None)
    assert "stuck" not in {found.kind for found in judge.findings()}


def test_a_signal_that_stands_still_in_many_vehicles_sticks_in_none() -> None:
    fleet = SimulatedFleet(400, 8, stuck=range(40))
    assert "stuck" not in {found.kind for found in judged(fleet).findings()}


def test_hours_without_readings_are_coverage_and_no_anomaly() -> None:
    """A vehicle whose readings of 17 hours are missing differs in its mean, and that is not its fault."""
    fleet = SimulatedFleet(400, 9)
    cohorts = Cohorts(fleet.names, fleet.models, fleet.firmwares)
    coverage = [FULL] * 400
    coverage[3] = Coverage(24, 7, 7, 0, 17)

    def judge(offset: float) -> list[FleetFinding]:
        judge = Judge(cohorts, coverage, 5, [])
        cells = fleet.cells(CABIN, DAY)
        for column in (cells.level, cells.spread, cells.fall):
            column[3, 7:] = np.nan
        cells.count[3, 7:] = 0
        cells.level[3] += offset
        judge.take(CABIN, cells, None)
        return judge.findings()

    assert judge(0) == []
    [found] = judge(25)
    assert found.text.endswith("; readings in 7 of 24 hours (17 waiting)")


def test_silence_is_named_and_the_whole_fleets_once_a_cohort() -> None:
    fleet = SimulatedFleet(300, 10)
    judge = judged(fleet)
    points = np.full(300, 7200)
    points[5], points[6] = 0, 3  # the second only says what it is
    judge.silent(points, ["on 2026-01-19"] * 300)
    found = named(judge.findings())
    assert {name: each.kind for name, each in found.items()} == {
        "SIM-000005": "no_data",
        "SIM-000006": "no_data",
    }
    assert found["SIM-000005"].text.startswith("no readings, seen last on 2026-01-19; ")
    assert found["SIM-000006"].text.startswith("3 readings, ")
    judge = judged(fleet)
    gone = np.array([model == "VAN-1" for model in fleet.models])
    judge.silent(np.where(gone, 0, 7200), [""] * 300)
    assert {(each.device, each.model, each.kind) for each in judge.findings()} == {
        ("", "VAN-1", "no_data")
    }


def test_a_wrong_clock_is_all_that_is_said_of_a_vehicle() -> None:
    fleet = SimulatedFleet(400, 11, drifting=(2,))
    judge = judged(fleet)
    judge.clocks([WrongClock("SIM-000002", 7200.0, 0, 50), WrongClock("UNKNOWN", 60.0, 0, 1)])
    [found] = judge.findings()
    assert (found.device, found.kind, found.also) == (
        "SIM-000002",
        "clock",
        ("drift of cabin.temp",),
    )
    assert found.text.startswith("its clock is 2 h ahead")
