"""The simulated fleet: what its vehicles send is what real ones would, and follows from the seed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, decode
from backhaul_codec.assurance.completeness import (
    LaneId,
    Mark,
    hours_between,
    lane_records,
    report_hours,
)
from backhaul_codec.kinds import BULK, LIVE
from backhaul_codec.protocol.words import MarkWord, read_word
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import lane_of, parse_uplink
from backhaul_hub.errors import ConfigError
from backhaul_hub.simulated.faults import KINDS, Fault, parse_faults, plant
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles, device_id
from backhaul_hub.simulated.load import Run
from backhaul_hub.simulated.vehicle import CYCLE_S, SERIES, Vehicle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from backhaul_hub.simulated.lanes import Sourced

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
START_NS = 1_767_225_600 * SECOND_NS  # 2026-01-01T00:00:00Z
PLAN = FleetPlan(devices=20, rate_min=6, passes=1, seed=7, start_ns=START_NS, seconds=120)
LATE = replace(PLAN, late_devices=3, late_s=6 * 3600)


def all_of(plan: FleetPlan) -> list[Sourced]:
    """Everything that a fleet sends, its backlog half way through."""
    fleet = SimulatedVehicles(plan)
    half, total = (round(plan.messages_s * plan.seconds * part) for part in (0.5, 1))
    backlog = fleet.backlog(START_NS + plan.seconds * SECOND_NS // 2)
    return [*fleet.introductions(), *fleet.live(0, half), *backlog, *fleet.live(half, total)]


def points_of(messages: Iterable[Sourced]) -> Iterator[tuple[str, Point]]:
    for message in messages:
        uplink = parse_uplink(f"up.{message.device}.{message.leaf_subject}")
        decoded = decode(message.body, node=uplink.node, type=uplink.type, key=uplink.key)
        for point in decoded.points:
            yield message.device, point


@pytest.mark.parametrize("plan", [PLAN, LATE, replace(PLAN, passes=5)], ids=["one", "late", "five"])
def test_seqs_of_each_lane_are_without_holes(plan: FleetPlan) -> None:
    seqs = defaultdict(list)
    for message in all_of(plan):
        decoded = decode(message.body)
        assert (decoded.epoch, decoded.seq) == (START_NS // SECOND_NS, message.seq)
        assert message.lane == lane_of(message.leaf_subject)
        seqs[message.device, message.lane].append(message.seq)
    assert len(seqs) == 2 * plan.devices
    for found in seqs.values():
        assert found == list(range(1, len(found) + 1))


def test_the_seed_and_nothing_else_says_what_is_sent() -> None:
    assert all_of(LATE) == all_of(LATE)
    assert all_of(LATE) != all_of(replace(LATE, seed=8))


def test_every_vehicle_sends_at_its_rate_all_signals() -> None:
    sent = defaultdict(list)
    for device, point in points_of(all_of(PLAN)):
        sent[device, f"{point.node}.{point.type}"].append(point)
    for number in range(PLAN.devices):
        counts = {
            series: len(found)
            for (device, series), found in sent.items()
            if device == device_id(number)
        }
        # Two minutes: 12 messages, six of the battery.
        assert counts == {
            "vehicle.model": 1,
            "vehicle.firmware": 1,
            "config.temp_max": 1,
            ".mark": 1,
            "battery.soc": 6,
            "battery.temp": 6,
            "cpu.load": 2,
            "motor.current": 2,
            "cabin.temp": 2,
        }
    for found in sent.values():
        assert all(earlier.time < later.time for earlier, later in pairwise(found))


def test_passes_of_a_frame_go_on_where_the_one_before_ended() -> None:
    times = [
        point.time
        for device, point in points_of(all_of(replace(PLAN, passes=4)))
        if device == device_id(5) and point.type == "soc"
    ]
    assert {later - earlier for earlier, later in pairwise(times)} == {5 * SECOND_NS}


def test_bundles_have_the_points_of_the_frames_that_an_older_agent_sends() -> None:
    frames, bundles = list(all_of(LATE)), list(all_of(replace(LATE, bundles=True)))
    assert list(points_of(bundles)) == list(points_of(frames))
    assert {each.leaf_subject for each in bundles if each.lane == BULK} == {"b"}
    places = [(each.device, each.lane, each.seq) for each in bundles]
    assert places == [(each.device, each.lane, each.seq) for each in frames]


def test_a_backlog_covers_the_time_away_and_comes_before_what_is_live() -> None:
    late = device_id(1)
    fleet = SimulatedVehicles(LATE)
    assert late not in {message.device for message in fleet.introductions()}
    assert late not in {message.device for message in fleet.live(0, 200)}
    backlog = list(fleet.backlog(START_NS + 100 * SECOND_NS))
    after = list(fleet.live(200, 240))
    assert {message.device for message in backlog} == {device_id(number) for number in range(3)}
    times = [
        point.time
        for device, point in points_of([*backlog, *after])
        if device == late and point.type == "soc"
    ]
    assert times == sorted(times)
    assert times[0] <= LATE.from_ns + 20 * SECOND_NS
    assert times[-1] > START_NS + 100 * SECOND_NS
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert [step for step in steps if step != 20 * SECOND_NS] == [21 * SECOND_NS // 2]


def test_the_hours_of_a_backlog_are_complete() -> None:
    held: defaultdict[LaneId, RangeSet] = defaultdict(RangeSet)
    marks = []
    for message in all_of(LATE):
        if message.device != device_id(0):
            continue
        decoded = decode(message.body)
        held[LaneId(message.lane, decoded.epoch)].add(message.seq, message.seq)
        uplink = parse_uplink(f"up.{message.device}.{message.leaf_subject}")
        word = read_word(uplink, decoded.epoch, message.body)
        if isinstance(word, MarkWord):
            marks.append(Mark(word.time_ns, word.epoch, message.seq, word.lanes, word.why))
    assert {"start", "hour", "link"} == {mark.why for mark in marks}
    records = lane_records(held, {}, [(mark.epoch, mark.lanes) for mark in marks])
    hours = hours_between(LATE.from_ns, START_NS)
    assert [each.state for each in report_hours(marks, records, hours)] == ["complete"] * 6
    del held[LaneId(BULK, START_NS // SECOND_NS)]
    records = lane_records(held, {}, [(mark.epoch, mark.lanes) for mark in marks])
    assert "waiting" in [each.state for each in report_hours(marks, records, hours)]


def vehicle(kind: str = "", series: str = "", ahead_ns: int = 0) -> Vehicle:
    return Vehicle("SIM-1", 3, Fault(kind, START_NS, series, ahead_ns) if kind else None)


def fall_pct_h(of: Vehicle, at_s: float) -> float:
    """By how much the charge falls in the hour after so much of its cycle."""
    cycle = CYCLE_S * SECOND_NS
    begin_ns = next(
        time_ns
        for time_ns in range(START_NS, START_NS + 2 * cycle, 10 * SECOND_NS)
        if of.soc_pct(time_ns) < of.soc_pct(time_ns - 10 * SECOND_NS)
        and of.soc_pct(time_ns - 10 * SECOND_NS) > of.soc_pct(time_ns - 60 * SECOND_NS)
    )
    first_ns = begin_ns + int(at_s * SECOND_NS)
    return of.soc_pct(first_ns) - of.soc_pct(first_ns + HOUR_NS)


def test_a_parked_battery_falls_slowly_unless_it_leaks() -> None:
    parked_s = 2.5 * 3600
    assert 0.4 < fall_pct_h(vehicle(), parked_s) < 0.8
    assert fall_pct_h(vehicle("leak", "battery.soc"), parked_s) > 10
    assert 10 < fall_pct_h(vehicle(), 0.2 * 3600) < 14


def test_one_firmware_drains_three_times_as_fast() -> None:
    draining = vehicle("drain", "battery.soc")
    assert draining.firmware == "4.2"
    assert vehicle().firmware in {"4.0", "4.1"}
    for at_s in (600, 2.5 * 3600):
        assert fall_pct_h(draining, at_s) == pytest.approx(3 * fall_pct_h(vehicle(), at_s))


def test_readings_are_plausible_all_the_time() -> None:
    times = range(START_NS, START_NS + 48 * HOUR_NS, 97 * SECOND_NS)
    for number in range(20):
        for kind in ("", "drain", "leak"):
            fault = Fault(kind, START_NS, "battery.soc") if kind else None
            some = Vehicle(f"SIM-{number}", 1, fault)
            soc, temp = some.readings("battery", times)
            assert 0 < min(soc) <= max(soc) <= 10_000
            assert max(temp) / 10 < some.temp_max_c - 1
            [load] = some.readings("cpu", times)
            assert all(0 <= each <= 100 and not 20 < each < 52 for each in load)


def test_a_hot_battery_is_over_its_threshold_for_several_readings() -> None:
    some = vehicle("hot", "battery.temp")
    times = range(START_NS, START_NS + HOUR_NS, 20 * SECOND_NS)
    _, temp = some.readings("battery", times)
    over = "".join("x" if each / 10 > some.temp_max_c else "." for each in temp)
    assert len(over.replace(".", " ").split()) in {6, 7}
    assert max(map(len, over.replace(".", " ").split())) == 6


@pytest.mark.parametrize("series", ["battery.temp", "cabin.temp", "motor.current"])
def test_a_sensor_sticks(series: str) -> None:
    node, type_ = series.split(".")
    column = [name for name, _ in SERIES[node]].index(type_)
    times = range(START_NS - HOUR_NS, START_NS + HOUR_NS, 10 * SECOND_NS)
    values = vehicle("stuck", series).readings(node, times)[column]
    assert len(set(values[:360])) > 3
    assert len(set(values[360:])) == 1


def test_a_sensor_drifts() -> None:
    times = [START_NS - HOUR_NS, START_NS + 24 * HOUR_NS]
    [good] = vehicle().readings("cabin", times)
    [drifting] = vehicle("drift", "cabin.temp").readings("cabin", times)
    assert [drifting[0] - good[0], drifting[1] - good[1]] == [0, 120]


def test_a_wrong_clock_stamps_ahead_and_a_silent_vehicle_says_only_what_it_is() -> None:
    plan = replace(PLAN, faults={"clock": 2, "silent": 2})
    fleet = SimulatedVehicles(plan)
    kinds = {device: said["fault"] for device, said in fleet.truth()["faults"].items()}
    assert sorted(kinds.values()) == ["clock", "clock", "silent", "silent"]
    counts: defaultdict[str, int] = defaultdict(int)
    for device, point in points_of(all_of(plan)):
        counts[device] += 1
        ahead_ns = point.time - START_NS
        assert (ahead_ns > 2 * HOUR_NS - 1) == (kinds.get(device) == "clock")
    assert {counts[device] for device, kind in kinds.items() if kind == "silent"} == {4}


def test_faults_are_planted_as_they_were_asked_for() -> None:
    asked = parse_faults("stuck:3,drift:2,drain:5")
    found = plant(asked, 100, 1, START_NS, START_NS + 100 * HOUR_NS)
    assert (
        sorted(fault.kind for fault in found.values())
        == ["drain"] * 5 + ["drift"] * 2 + ["stuck"] * 3
    )
    for fault in found.values():
        share = (fault.since_ns - START_NS) / (100 * HOUR_NS)
        assert share == 0 if fault.kind == "drain" else 0.25 <= share <= 0.5
    assert found == plant(asked, 100, 1, START_NS, START_NS + 100 * HOUR_NS)
    assert set(parse_faults(",".join(f"{kind}:1" for kind in KINDS))) == set(KINDS)


@pytest.mark.parametrize("text", ["stuck", "stuck:x", "rust:3", "stuck:1,stuck:2", "stuck:-1"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no fault"):
        parse_faults(text)


def test_more_faults_than_vehicles_are_refused() -> None:
    with pytest.raises(ConfigError, match="fleet of 20"):
        SimulatedVehicles(replace(PLAN, faults={"stuck": 21}))


class Paced:
    """A clock that moves while somebody sleeps, and by each message that is sent."""

    def __init__(self, message_s: float) -> None:
        self.at_s = 0.0
        self.sent: list[tuple[float, Sourced]] = []
        self._message_s = message_s

    def now_ns(self) -> int:
        return START_NS + int(self.at_s * SECOND_NS)

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds

    async def send(self, message: Sourced) -> None:
        self.sent.append((self.at_s, message))
        self.at_s += self._message_s


async def test_messages_go_out_when_they_are_due() -> None:
    paced = Paced(message_s=0.0)
    run = Run(SimulatedVehicles(LATE), paced.send, paced, paced.sleep)
    await run.introduce()
    await run.live(backlog_at_s=60, backlog_messages_s=10)
    frames = [(at_s, each) for at_s, each in paced.sent if each.lane == BULK]
    live = [at_s for at_s, each in frames if each.device == device_id(10)]
    assert len(live) == 12
    assert all(9.9 < later - earlier < 10.1 for earlier, later in pairwise(live))
    late = [at_s for at_s, each in paced.sent if each.device == device_id(0)]
    assert min(late) >= 60
    assert paced.at_s < 121
    assert run.behind_s_max < 0.1
    assert {each.lane for _, each in paced.sent} == {LIVE, BULK}


async def test_a_fleet_that_is_too_fast_is_sent_whole_and_said_to_be_late() -> None:
    paced = Paced(message_s=1.0)
    run = Run(SimulatedVehicles(PLAN), paced.send, paced, paced.sleep)
    await run.live(backlog_at_s=60, backlog_messages_s=10)
    assert sum(each.lane == BULK for _, each in paced.sent) == 240
    assert run.behind_s_max > 50


async def test_a_backlog_without_anything_live_is_the_same_each_time() -> None:
    sent = []
    for message_s in (0.0, 0.1):
        paced = Paced(message_s)
        plan = replace(LATE, seconds=0, late_devices=20)
        await Run(SimulatedVehicles(plan), paced.send, paced, paced.sleep).live(0, 1000)
        sent.append([each for _, each in paced.sent])
    assert sent[0] == sent[1]
    assert len({each.device for each in sent[0]}) == 20
