"""A vehicle is erased from tables of every kind: rows, files of the past, and what the logs say of their values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.completeness.hour_reports import hour_reports
from backhaul_spark.errors import TableMissingError
from backhaul_spark.jobs.erase import TableErasure, erased_devices
from backhaul_spark.jobs.maintain import Keeping, Maintenance
from backhaul_spark.tables.delta import dataset_of
from backhaul_spark.tables.schemas import REJECTS_TABLE, TABLES, TableSpec
from tests.support.every_table import write_every_table
from tests.support.spark_fleet import HOUR_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

GONE = "VID-777"
PLANTED = "planted-text-of-one-vehicle"


def rows(root: Path, spec: TableSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        dataset_of(DeltaTable(f"{root}/{spec.name}")).to_table().to_pylist()
    )
    return found


def holding(root: Path, text: str) -> list[str]:
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_nothing_of_an_erased_vehicle_is_in_any_file_and_all_others_are_as_they_were(
    tmp_path: Path,
) -> None:
    write_every_table(tmp_path)
    fleet = Fleet(tmp_path, now_ns=T0_NS + 5 * HOUR_NS)
    fleet.mark(1, bulk=0, device=GONE)
    for text in (PLANTED, f"{PLANTED} again"):
        fleet.send((0, text), device=GONE)
        fleet.rollup()
        fleet.report_hours()
    assert holding(tmp_path, PLANTED)
    before = {spec.name: rows(tmp_path, spec) for spec in TABLES}
    reported = [hour for device, hour in hour_reports(str(tmp_path)) if device == GONE]
    assert reported
    said = CliRunner().invoke(
        cli, ["maintain", "--erase", GONE, "--table-root", str(tmp_path), "--json"]
    )
    assert said.exit_code == 0, said.output
    taken = json.loads(said.stdout)["erased_rows"]
    assert {"points", "coverage", "marks", "rollups", "rollups_superseded"} <= taken.keys()
    assert holding(tmp_path, PLANTED) == []
    for spec in TABLES:
        found = rows(tmp_path, spec)
        others = [row for row in before[spec.name] if row.get("device") != GONE]
        if spec.name not in ("certificates", "erasures"):
            assert sorted(map(str, found)) == sorted(map(str, others)), spec.name
    hours = hour_reports(str(tmp_path), GONE)
    assert [hour.hour_ns for _, hour in hours] == [hour.hour_ns for hour in reported]
    assert {hour.state for _, hour in hours} == {"erased"}
    assert erased_devices(str(tmp_path))[GONE]["done_at"]
    shown = CliRunner().invoke(
        cli, ["completeness", "--device", GONE, "--table-root", str(tmp_path)]
    )
    assert f"{GONE} hours: {len(hours)} erased" in shown.stdout, shown.output


def test_a_writer_that_is_at_work_goes_on_and_what_it_brings_again_goes_with_maintain(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, now_ns=T0_NS + 5 * HOUR_NS)
    fleet.send((0, PLANTED), device=GONE)
    fleet.send((0, "of another"), device="VID-003")
    ended = list[str]()

    def killed(table: str) -> None:
        ended.append(table)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TableErasure(str(tmp_path), SYSTEM_CLOCK, killed).run([GONE])
    assert erased_devices(str(tmp_path))[GONE]["done_at"] is None
    fleet.send((5, f"{PLANTED} late"), device=GONE)  # by the same writer, which knows nothing of it
    fleet.send((5, "of another, late"), device="VID-003")
    done = Maintenance(str(tmp_path), SYSTEM_CLOCK).run(Keeping())
    assert done.erased_rows["points"] == 1
    assert holding(tmp_path, PLANTED) == []
    assert erased_devices(str(tmp_path))[GONE]["done_at"]
    assert [row["value_text"] for row in fleet.rows("points")] == ["of another", "of another, late"]
    fleet.send((9, "of another, at last"), device="VID-003")
    assert len(fleet.rows("points")) == 3


def test_where_nothing_was_ingested_there_is_nothing_to_erase(tmp_path: Path) -> None:
    with pytest.raises(TableMissingError):
        TableErasure(str(tmp_path), SYSTEM_CLOCK).run([GONE])
    assert REJECTS_TABLE in TABLES
