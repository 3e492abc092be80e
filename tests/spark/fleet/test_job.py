"""From rollups, completeness reports and points to the tables `anomalies` and `fleet_days`, and again."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import NothingFoundError, OptionError, TableMissingError, TablesBusyError
from backhaul_spark.fleet.job import Done, FleetJob
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import POINTS_TABLE, ROLLUPS_TABLE
from tests.spark.fleet.reported_hours import report_hours
from tests.support.fleet_rollups import DAY, SimulatedFleet, days_before

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SETTINGS = FleetSettings()
FAULTS: dict[str, Any] = {
    "stuck": (1,),
    "drifting": (2,),
    "silent": (3,),
    "draining": range(10, 60),
}


def job(root: Path, **given: Any) -> FleetJob:
    return FleetJob(str(root), SYSTEM_CLOCK, SETTINGS, **given)


def write(root: Path, fleet: SimulatedFleet, days: int = 2) -> None:
    make_table(str(root), ROLLUPS_TABLE)
    for day in [*days_before(days), DAY]:
        fleet.write(str(root), day)


def stamp_ahead(root: Path, device: str, hours: float) -> None:
    """A few points of a device, stored at noon, that were read hours later by its clock."""
    noon = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC)
    row = dict.fromkeys(POINTS_TABLE.schema.names) | {
        "device": device,
        "letter": "f",
        "time_ns": int((noon.timestamp() + hours * 3600) * 1e9),
        "clock": 0,
        "stored_at": noon,
        "date": DAY,
        "ingest": 1,
    }
    table = pa.Table.from_pylist([row] * 5, schema=POINTS_TABLE.schema)
    write_deltalake(make_table(str(root), POINTS_TABLE), table, mode="append")


def rows_of(root: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(f"{root}/{name}").to_pyarrow_table().to_pylist()
    return rows


def write_point(root: Path, device: str, stamped: datetime, stored: datetime, day: date) -> None:
    row = dict.fromkeys(POINTS_TABLE.schema.names) | {
        "device": device,
        "letter": "f",
        "time_ns": int(stamped.timestamp() * 1e9),
        "clock": 0,
        "stored_at": stored,
        "date": day,
        "ingest": 1,
    }
    table = pa.Table.from_pylist([row], schema=POINTS_TABLE.schema)
    write_deltalake(make_table(str(root), POINTS_TABLE), table, mode="append")


def kinds(root: Path, *, judged: bool = False) -> dict[str, str]:
    if judged:
        job(root).run(DAY)
    return {row["device"]: row["kind"] for row in standing(str(root), DAY)}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with every planted fault, judged once; tests only read them."""
    root = tmp_path_factory.mktemp("faulty")
    fleet = SimulatedFleet(400, 3, **FAULTS)
    write(root, fleet)
    report_hours(root, fleet)
    stamp_ahead(root, "SIM-000004", 5)
    stamp_ahead(root, "SIM-000005", 0)
    job(root).run(DAY)
    return root


def test_all_that_was_planted_is_found_and_named_and_nothing_else(faulty: Path) -> None:
    assert kinds(faulty) == {
        "SIM-000001": "stuck",
        "SIM-000002": "drift",
        "SIM-000003": "no_data",
        "SIM-000004": "clock",
        "": "firmware",
    }
    rows = {row["device"]: row for row in standing(str(faulty), DAY)}
    assert rows["SIM-000004"]["text"] == (
        "its clock is 5 h ahead: the hub stored readings before they were taken"
    )
    silent = rows["SIM-000003"]
    assert silent["text"].startswith("no readings, seen last on 2026-01-19; ")
    assert (silent["hours"], silent["hours_seen"], silent["hours_waiting"]) == (24, 0, 24)
    assert rows["SIM-000001"]["hours_complete"] == 24
    ranks = [row["rank"] for row in standing(str(faulty), DAY)]
    assert ranks == list(range(1, len(ranks) + 1))


def test_one_that_nobody_knew_before_and_whose_clock_is_days_ahead_is_named(tmp_path: Path) -> None:
    """It has readings in other days' hours only, and completeness reports of none."""
    write(tmp_path, SimulatedFleet(60, 3))
    stamp_ahead(tmp_path, "SIM-NEW", 50)
    job(tmp_path).run(DAY)
    assert kinds(tmp_path) == {"SIM-NEW": "clock"}


@pytest.mark.parametrize("device", [f"SIM-{number:06d}" for number in (2, 7)])
def test_a_clock_that_is_ahead_while_its_days_come_as_a_backlog_is_no_drift(
    tmp_path: Path, device: str
) -> None:
    """Its readings of the day look two days late; its newest ones are of the hub's future."""
    write(tmp_path, SimulatedFleet(400, 3, drifting=[int(device[-2:])]))
    assert kinds(tmp_path, judged=True) == {device: "drift"}
    came = datetime(DAY.year, DAY.month, DAY.day, 9, tzinfo=UTC) + timedelta(days=2)
    for ago_h, day in ((50, DAY), (26, DAY), (0, DAY + timedelta(days=2))):
        stamped = came - timedelta(hours=ago_h) + timedelta(hours=5)
        write_point(tmp_path, device, stamped, came, day)
    # One whose backlog is as late, by a clock that is right.
    write_point(tmp_path, "SIM-000020", came - timedelta(hours=40), came, DAY)
    write_point(tmp_path, "SIM-000020", came, came, DAY + timedelta(days=2))
    assert kinds(tmp_path, judged=True) == {device: "clock"}
    [row] = standing(str(tmp_path), DAY)
    assert row["text"].startswith("its clock is 5 h ahead")


def test_a_day_of_the_fleet_says_who_was_there_and_what_was_usual(faulty: Path) -> None:
    rows = rows_of(faulty, "fleet_days")
    cohorts = [row for row in rows if not row["node"]]
    assert sum(row["devices"] for row in cohorts) == 399
    assert sum(row["silent"] for row in cohorts) == 1
    assert sum(row["hours"] for row in cohorts) == 400 * 24
    assert sum(row["hours_waiting"] for row in cohorts) == 24
    assert sum(row["anomalies"] for row in cohorts) == len(standing(str(faulty), DAY))
    falls = {
        (row["model"], row["firmware"]): row["fall_median"] for row in rows if row["type"] == "soc"
    }
    assert len(falls) == 9
    for model in ("VAN-1", "VAN-2", "TRUCK-1"):
        assert falls[model, "4.2"] > 2.5 * falls[model, "4.1"]
    assert {row["fall_median"] for row in rows if row["type"] == "load"} == {None}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(150, 3, stuck=(1,)), days=0)
    assert job(tmp_path).run(DAY) == Done(str(DAY), None, 150, 0, 1, 1, 0)
    before = rows_of(tmp_path, "anomalies"), rows_of(tmp_path, "fleet_days")
    assert job(tmp_path).run(DAY) == Done(str(DAY), None, 150, 0, 1, 0, 0)
    assert (rows_of(tmp_path, "anomalies"), rows_of(tmp_path, "fleet_days")) == before


def test_late_data_makes_a_day_due_and_withdraws_what_it_explains(tmp_path: Path) -> None:
    fleet = SimulatedFleet(150, 3, silent=(7,), stuck=(1,))
    late = SimulatedFleet(150, 3, stuck=(1,))
    for each in (fleet, late):  # of another cohort, or one peer more would be news of the first
        each.models[7], each.models[1] = "VAN-1", "VAN-2"
    write(tmp_path, fleet, days=1)
    assert job(tmp_path).due() == [*days_before(1), DAY]
    for day in job(tmp_path).due():
        job(tmp_path).run(day)
    assert job(tmp_path).due() == []
    assert kinds(tmp_path) == {"SIM-000007": "no_data", "SIM-000001": "stuck"}
    write_deltalake(
        f"{tmp_path}/rollups",
        DeltaTable(f"{tmp_path}/rollups").to_pyarrow_table().slice(0, 0),
        mode="overwrite",
        predicate=f"date = '{DAY}'",
    )
    late.write(str(tmp_path), DAY, ingest=2)
    assert job(tmp_path).due() == [DAY]
    done = job(tmp_path).run(DAY)
    assert (done.anomalies, done.changed, done.withdrawn) == (1, 1, 1)
    assert kinds(tmp_path) == {"SIM-000001": "stuck"}
    rows = {row["device"]: row for row in rows_of(tmp_path, "anomalies")}
    found = [rows[f"SIM-{i:06d}"] for i in (1, 7)]
    assert [(row["state"], row["version"], row["ingest"]) for row in found] == [
        ("open", 1, 1),
        ("withdrawn", 2, 2),
    ]
    job(tmp_path).run(DAY)
    assert {row["device"]: row for row in rows_of(tmp_path, "anomalies")} == rows
    assert job(tmp_path).due() == []


def test_a_run_that_ended_between_the_tables_is_done_again(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def die(step: str) -> None:
        if step == "anomalies":
            raise Killed

    write(tmp_path, SimulatedFleet(150, 3, stuck=(1,)), days=0)
    with pytest.raises(Killed):
        job(tmp_path, after=die).run(DAY)
    assert job(tmp_path).due() == [DAY]
    job(tmp_path).run(DAY)
    assert [row["version"] for row in rows_of(tmp_path, "anomalies")] == [1]
    assert job(tmp_path).due() == []


def test_memory_may_be_little_and_the_answer_is_the_same(faulty: Path) -> None:
    """Signals are read a few at a time, down to one."""
    before = rows_of(faulty, "anomalies")
    assert job(faulty, cells_max=1).run(DAY).changed == 0
    assert rows_of(faulty, "anomalies") == before


def test_an_hour_has_anomalies_of_its_own_beside_the_days(faulty: Path) -> None:
    job(faulty).run(DAY, 12)
    found = {row["device"]: row for row in standing(str(faulty), DAY, 12)}
    assert found["SIM-000003"]["kind"] == "no_data"
    assert found["SIM-000004"]["kind"] == "clock"
    assert {row["hours"] for row in found.values() if row["device"]} == {1}
    assert found["SIM-000003"]["id"].startswith("2026-01-20T12:SIM-000003:no_data:")
    assert len(standing(str(faulty), DAY)) > 4


def test_a_rolled_out_firmware_is_compared_with_the_days_before_it(tmp_path: Path) -> None:
    """Overnight on all vehicles: no other firmware is left to compare with on the day."""
    before = SimulatedFleet(120, 3)
    before.models, before.firmwares = ["VAN-1"] * 120, ["4.1"] * 120
    after = SimulatedFleet(120, 3, draining=range(120))
    after.models = before.models
    make_table(str(tmp_path), ROLLUPS_TABLE)
    for day in days_before(4):
        before.write(str(tmp_path), day)
        job(tmp_path).run(day)
    after.write(str(tmp_path), DAY)
    job(tmp_path).run(DAY)
    [found] = [row for row in standing(str(tmp_path), DAY) if row["type"] == "soc"]
    assert (found["kind"], found["device"], found["firmware"]) == ("rollout", "", "4.2")
    assert 2.5 < found["value"] / found["expected"] < 3.5
    assert "in the 4 days before that firmware" in found["text"]


def test_the_command_judges_what_is_due_and_tells_it(tmp_path: Path) -> None:
    write(tmp_path, SimulatedFleet(150, 3, stuck=(1,)), days=0)
    run = CliRunner().invoke(cli, ["anomalies", "--table-root", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "2026-01-20: 150 devices, 1 anomaly" in run.stdout
    assert "stuck    SIM-000001: cabin.temp sticks at" in run.stdout
    run = CliRunner().invoke(cli, ["anomalies", "--table-root", str(tmp_path), "--quiet"])
    assert run.stdout == "no day has changed since it was judged\n"
    asked = ["anomalies", "--table-root", str(tmp_path), "--day", str(DAY), "--json"]
    [result] = json.loads(CliRunner().invoke(cli, [*asked, "--quiet"]).stdout)
    assert (result["day"], result["devices"], result["changed"]) == ("2026-01-20", 150, 0)
    assert [row["device"] for row in result["found"]] == ["SIM-000001"]


def test_wrong_questions_are_answered_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TableMissingError):
        job(tmp_path)
    make_table(str(tmp_path), ROLLUPS_TABLE)
    with pytest.raises(NothingFoundError, match="no rollups of 2026-01-20"):
        job(tmp_path).run(DAY)
    asked = ["anomalies", "--table-root", str(tmp_path)]
    run = CliRunner().invoke(cli, [*asked, "--day", "yesterday"])
    assert isinstance(run.exception, OptionError)
    run = CliRunner().invoke(cli, [*asked, "--hour", "3"])
    assert "--hour needs --day" in run.output


def test_two_runs_at_a_time_one_of_them_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SimulatedFleet(60, 3), days=0)
    from backhaul_spark.fleet import job as job_module

    real = write_deltalake
    raced: list[bool] = []

    def slow(table: DeltaTable, *given: Any, **named: Any) -> None:
        if not raced:
            raced.append(True)
            job(tmp_path).run(DAY)
        real(table, *given, **named)

    monkeypatch.setattr(job_module, "write_deltalake", slow)
    with pytest.raises(TablesBusyError, match="another run has judged meanwhile"):
        job(tmp_path).run(DAY)


def test_a_fleet_says_what_its_series_are_called(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[twin]\nx = 1\n[fleet]\nmodel = "car.kind"\ndrains = ["fuel.level", "soc.x.1"]\n'
    )
    read = FleetSettings.read(str(path))
    assert read == FleetSettings("car.kind", "vehicle.firmware", ("fuel.level", "soc.x.1"))
    for text, wrong in (
        ("[fleet]\nmodell = 'a.b'", "modell.*one of drains, firmware, model"),
        ("[flet]\nmodel = 'a.b'", "flet.*one of fleet"),
        ("[fleet]\nmodel = 3", "series such as"),
        ("[fleet]\ndrains = 'a.b'", "series such as"),
        ("[fleet]\nmodel = 'nonsense'", "a series such as"),
        ("fleet = 3", "a section .fleet."),
        ("[fleet", "TOML"),
    ):
        path.write_text(text)
        with pytest.raises(OptionError, match=wrong):
            FleetSettings.read(str(path))
    with pytest.raises(OptionError, match="a readable file"):
        FleetSettings.read(str(tmp_path / "missing.toml"))
