"""No finding is no all-clear: what was not judged is said, and what a completeness report does not say."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.jobs.anomalies import anomalies
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.readings import Signal
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing, unjudged
from backhaul_spark.fleet.unjudged import (
    ROWS_MAX,
    SignalGaps,
    handed_over_later,
    not_compared,
    unjudged_parts,
)
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.report.report import Report
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE, ROLLUPS_TABLE
from tests.support.fleet_rollups import DAY, SimulatedFleet, days_before
from tests.support.spark_frames import frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.slow

SOC, TEMP = Signal("battery", "soc"), Signal("cabin", "temp")


def write(root: Path, fleet: SimulatedFleet, days: int = 1) -> None:
    make_table(str(root), ROLLUPS_TABLE)
    for day in [*days_before(days), DAY]:
        fleet.write(str(root), day)


def judge(root: Path, hour: int | None = None) -> FleetJob:
    job = FleetJob(str(root), SYSTEM_CLOCK, FleetSettings())
    job.run(DAY, hour)
    return job


def report_hours(root: Path, device: str, day: date, *states: str) -> None:
    """One hour after another from the beginning of a day on."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    rows = [
        dict.fromkeys(HOUR_REPORTS_TABLE.schema.names)
        | {"device": device, "state": state, "date": day, "ingest": 1}
        | {"hour": start + timedelta(hours=hour)}
        for hour, state in enumerate(states)
    ]
    table = pa.Table.from_pylist(rows, schema=HOUR_REPORTS_TABLE.schema)
    write_deltalake(make_table(str(root), HOUR_REPORTS_TABLE), table, mode="append")


def page(root: Path) -> str:
    return Report(str(root), SYSTEM_CLOCK).page(DAY)[0]


def test_a_device_without_peers_is_not_called_sound(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(1, 3))
    judge(tmp_path)
    text = page(tmp_path)
    assert "Nothing stands out" not in text
    assert "Nothing was found, in what was judged." in text
    assert "No device was compared with others" in text
    assert "at most 1 device has one" in text
    told = CliRunner().invoke(anomalies, ["--table-root", str(tmp_path), "--day", str(DAY)])
    assert "No device was compared with others" in told.output


def test_a_fleet_that_was_compared_is_told_so_by_silence(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(20, 3))
    judge(tmp_path)
    assert "Nothing stands out." in page(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_fleet_of_five_has_no_finding(tmp_path: Path, seed: int) -> None:
    write(tmp_path, SimulatedFleet(5, seed), days=7)
    judge(tmp_path)
    assert standing(str(tmp_path), DAY) == []


@pytest.mark.parametrize("kind", ["stuck", "drift"])
def test_in_a_fleet_of_five_a_device_is_compared_with_its_own_past(
    tmp_path: Path, kind: Literal["stuck", "drift"]
) -> None:
    stuck, drifting = ((2,), ()) if kind == "stuck" else ((), (2,))
    write(tmp_path, SimulatedFleet(5, 3, stuck=stuck, drifting=drifting), days=7)
    done = FleetJob(str(tmp_path), SYSTEM_CLOCK, FleetSettings()).run(DAY)
    [row] = standing(str(tmp_path), DAY)
    assert (row["device"], row["kind"], row["type"]) == ("SIM-000002", kind, "temp")
    assert row["peers"] == 0
    assert row["cohort"].startswith("its own ")
    assert "No device was compared with others" in done.not_judged
    assert "its own days before" in done.not_judged


def test_one_that_is_fifteen_degrees_off_since_today_is_seen_in_a_small_fleet(
    tmp_path: Path,
) -> None:
    write(tmp_path, SimulatedFleet(5, 3), days=7)
    table = DeltaTable(f"{tmp_path}/rollups")
    rows = table.to_pyarrow_table().to_pylist()
    for row in rows:
        of = (row["device"], row["node"], row["type"], row["date"])
        if of == ("SIM-000001", "battery", "temp", DAY):
            row |= {n: row[n] + 15 for n in ("min", "max", "mean", "first", "last")}
    raised = pa.Table.from_pylist(rows, schema=ROLLUPS_TABLE.schema)
    write_deltalake(table, raised, mode="overwrite")
    judge(tmp_path)
    [row] = standing(str(tmp_path), DAY)
    assert (row["device"], row["node"], row["kind"]) == ("SIM-000001", "battery", "drift")
    assert "too few peers to be compared with" in row["text"]


def test_what_has_neither_peers_nor_a_past_is_counted(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(3, 3), days=2)
    done = FleetJob(str(tmp_path), SYSTEM_CLOCK, FleetSettings()).run(DAY)
    assert "15 signals of devices have too few peers and no three days before" in done.not_judged


def reasons(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["reason"], row["device"], f"{row['node']}.{row['type']}") for row in rows]


def test_the_table_says_what_was_not_judged_until_it_is(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(3, 3), days=2)
    judge(tmp_path)
    rows = unjudged(str(tmp_path), DAY)
    assert len(rows) == 5 + 15
    assert ("few_peers", "", "cabin.temp") in reasons(rows)
    assert ("no_past", "SIM-000002", "cabin.temp") in reasons(rows)
    assert {row["devices"] for row in rows if row["reason"] == "few_peers"} == {3}
    assert {(row["version"], row["hour"]) for row in rows} == {(1, None)}
    judge(tmp_path)
    assert unjudged(str(tmp_path), DAY) == rows, "what is said again keeps its stamps"
    assert unjudged(str(tmp_path), DAY, 12) == []
    text = page(tmp_path)
    assert "SIM-000002" in text
    assert "nobody knows what is usual" in text
    words = ["--table-root", str(tmp_path), "--day", str(DAY), "--json", "--quiet"]
    [told] = json.loads(CliRunner().invoke(anomalies, words).output)
    assert reasons(told["unjudged"]) == reasons(rows)
    for day in (DAY - timedelta(days=each) for each in (3, 4)):
        SimulatedFleet(20, 3).write(str(tmp_path), day)
    SimulatedFleet(17, 3, first=3).write(str(tmp_path), DAY)
    judge(tmp_path)
    assert unjudged(str(tmp_path), DAY) == []


def test_a_day_that_an_earlier_version_judged_is_read_on(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(3, 3), days=2)
    judge(tmp_path)
    shutil.rmtree(tmp_path / "unjudged")
    assert unjudged(str(tmp_path), DAY) == []
    assert "No device was compared with others" in page(tmp_path)
    assert [*Report(str(tmp_path), SYSTEM_CLOCK).due(str(tmp_path / "pages"))] == [DAY]


def test_a_signal_in_which_most_are_alike_is_not_scored(tmp_path: Path) -> None:
    class Alike(SimulatedFleet):
        def readings(self, signal: Signal, day: date) -> NDArray[np.float64]:
            values = super().readings(signal, day)
            return np.full_like(values, 4.0) if signal == TEMP else values

    write(tmp_path, Alike(20, 3))
    judge(tmp_path)
    [row] = unjudged(str(tmp_path), DAY)
    assert (row["reason"], row["type"], row["devices"]) == ("alike", "temp", 20)


def test_very_many_devices_are_one_row() -> None:
    many = [f"V-{number}" for number in range(ROWS_MAX + 1)]
    gaps = {SOC: SignalGaps(ROWS_MAX + 1, many, 0)}
    found = unjudged_parts(gaps, many[:ROWS_MAX], signals_left_out=2)
    assert [(each.reason, each.devices) for each in found[:2]] == [
        ("few_peers", ROWS_MAX + 1),
        ("no_past", ROWS_MAX + 1),
    ]
    assert sum(each.reason == "clock" for each in found) == ROWS_MAX
    assert found[-1].text.startswith("2 signals")


def hand_over_later(root: Path, fleet: SimulatedFleet) -> None:
    """Of each vehicle a reading of DAY, which the hub stored five weeks later."""
    ingest = Ingest(str(root), SYSTEM_CLOCK)
    noon = int(datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC).timestamp()) * 10**9
    parts = [
        message_batch("UP_00", stored([frame(1, start_ns=noon)], device=name, first_seq=at + 1))
        for at, name in enumerate(fleet.names)
    ]
    ingest.commit("app", 0, [task(str(root), ingest.tables.next_ingest, *parts)])


class Ahead(SimulatedFleet):
    """The clock of vehicle 3 is three hours ahead."""

    def readings(self, signal: Signal, day: date) -> NDArray[np.float64]:
        values = super().readings(signal, day)
        values[3] = np.roll(values[3], 36)
        return values


def test_a_clock_that_is_ahead_shows_in_an_old_backlog_and_is_called_no_drift(
    tmp_path: Path,
) -> None:
    fleet = Ahead(40, 3)
    write(tmp_path, fleet, days=4)
    assert _of_vehicle(tmp_path, fleet) == []
    hand_over_later(tmp_path, fleet)
    [row] = _of_vehicle(tmp_path, fleet)
    assert (row["kind"], row["value"]) == ("clock", 3 * 3600)
    assert "about 3 h ahead (or 21 h behind)" in row["text"]
    unknown = [each["device"] for each in unjudged(str(tmp_path), DAY) if each["reason"] == "clock"]
    assert unknown == [name for name in fleet.names if name != fleet.names[3]]
    assert "whether the clock was right cannot be told" in page(tmp_path)


def test_a_finding_of_an_old_backlog_says_that_the_clock_is_not_known(tmp_path: Path) -> None:
    fleet = SimulatedFleet(40, 3, drifting=(2,))
    write(tmp_path, fleet, days=4)
    hand_over_later(tmp_path, fleet)
    judge(tmp_path)
    [row] = standing(str(tmp_path), DAY)
    assert (row["device"], row["kind"]) == (fleet.names[2], "drift")
    assert "nothing tells whether its clock was right" in row["text"]


def _of_vehicle(root: Path, fleet: SimulatedFleet) -> list[dict[str, Any]]:
    judge(root)
    return [row for row in standing(str(root), DAY) if row["device"] == fleet.names[3]]


def test_signals_that_few_have_are_named() -> None:
    assert not_compared({SOC: 9, TEMP: 9}) == ""
    some = not_compared({SOC: 9, TEMP: 8})
    assert some.startswith("1 of 2 signals was not compared with other devices")
    assert some.endswith("cabin.temp")
    many = not_compared({SOC: 9} | {Signal("n", f"t{i:02}"): 2 for i in range(12)})
    assert many.endswith("n.t09 and 2 more")


def test_a_day_that_was_handed_over_later_is_neither_incomplete_nor_reported(
    tmp_path: Path,
) -> None:
    fleet = SimulatedFleet(1, 3)
    write(tmp_path, fleet)
    judge(tmp_path)
    text = page(tmp_path)
    assert ">0.0 %" not in text
    assert "are reported complete" not in text
    assert "<b>24</b><span>device-hours have readings that came later" in text
    assert "no completeness report" in text
    assert "All of these readings are held" in text.replace("\n", " ")
    assert "No later hour of this device is reported yet" in text
    report_hours(tmp_path, fleet.names[0], DAY + timedelta(days=30), "complete", "complete")
    assert "nothing of it is missing" in page(tmp_path)
    report_hours(tmp_path, fleet.names[0], DAY + timedelta(days=31), "waiting", "explained")
    text = page(tmp_path)
    assert "nothing of it is missing" not in text
    assert "1 waiting, 1 explained: readings of this day may be" in text


def test_what_is_known_of_hours_that_came_later_is_said_in_each_case() -> None:
    assert handed_over_later(0, 0, {}) == ""
    assert "1 device-hour has readings" in handed_over_later(1, 1, {"complete": 3})
    assert "these 2 devices" in handed_over_later(5, 2, {"waiting": 3})
    assert "completeness DEVICE" in handed_over_later(5, 2000, None)


def test_reported_hours_are_told_as_before_beside_those_that_came_later(tmp_path: Path) -> None:
    fleet = SimulatedFleet(1, 3)
    write(tmp_path, fleet)
    report_hours(tmp_path, fleet.names[0], DAY, *["complete"] * 6)
    judge(tmp_path)
    text = page(tmp_path)
    assert "<b>25.0 %</b><span>are reported complete" in text
    assert "<b>18</b><span>device-hours have readings that came later" in text


def few_readings(root: Path, device: str, hour: int) -> None:
    """One reading of a device in one hour of DAY."""
    rows = DeltaTable(f"{root}/rollups").to_pyarrow_table()
    start = datetime(DAY.year, DAY.month, DAY.day, hour, tzinfo=UTC)
    mine = (pc.field("width") == "1h") & (pc.field("date") == DAY) & (pc.field("type") == "soc")
    row = rows.filter(mine & (pc.field("count") > 1)).slice(0, 1).to_pylist()[0]
    row |= {"device": device, "window_start": start, "count": 1}
    table = pa.Table.from_pylist([row], schema=ROLLUPS_TABLE.schema)
    write_deltalake(f"{root}/rollups", table, mode="append", partition_by=["width", "date"])


@pytest.mark.parametrize("hour", [None, 12])
def test_a_device_with_few_readings_was_seen_when_it_sent_them(
    tmp_path: Path, hour: int | None
) -> None:
    fleet = SimulatedFleet(40, 3, silent=(3,))
    write(tmp_path, fleet)
    few_readings(tmp_path, fleet.names[3], 5)
    judge(tmp_path, hour)
    found = next(row for row in standing(str(tmp_path), DAY, hour) if row["kind"] == "no_data")
    assert found["device"] == fleet.names[3]
    assert "seen last on 2026-01-20 between 05:00 and 06:00; " in found["text"]


def test_a_device_that_was_in_touch_on_a_day_was_not_seen_last_before_it(tmp_path: Path) -> None:
    """As one that replays: its readings are of other days."""
    fleet = SimulatedFleet(40, 3, silent=(3,))
    write(tmp_path, fleet)
    report_hours(tmp_path, fleet.names[3], DAY, "waiting", "complete")
    judge(tmp_path)
    [found] = standing(str(tmp_path), DAY)
    said = "seen last on 2026-01-20, as its completeness reports say, its readings on 2026-01-19; "
    assert said in found["text"]
