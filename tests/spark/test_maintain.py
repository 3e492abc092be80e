"""Retention, compaction and vacuum: what they take, what they leave, and who works beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import NotKeptError, TableMissingError
from backhaul_spark.jobs.maintain import Keeping, Maintained, Maintenance
from backhaul_spark.rollup.known_at import rollups_known_at
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables import schemas
from backhaul_spark.tables.delta import make_table
from tests.support.spark_fleet import DAY_NS, HOUR_NS, Fleet
from tests.support.spark_frames import T0_NS

pytestmark = pytest.mark.slow

OLD_S = 1_700_000_000


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Five days of a reading each, rolled up on the sixth day; the first is restated then."""
    fleet = Fleet(tmp_path, T0_NS + int(4.5 * DAY_NS))
    for day in range(5):
        fleet.send((day * DAY_NS, float(day)))
    fleet.rollup()
    fleet.send((5, 1.0))
    fleet.now_ns = T0_NS + 5 * DAY_NS
    fleet.rollup()
    return fleet


def maintain(fleet: Fleet, **keeping: Any) -> Maintained:
    return Maintenance(fleet.root, fleet.clock).run(Keeping(**keeping))


def days_of_points(fleet: Fleet) -> list[int]:
    return sorted((row["time_ns"] - T0_NS) // DAY_NS for row in fleet.rows("points"))


def test_old_points_go_and_their_rollups_stay(fleet: Fleet) -> None:
    windows = fleet.rows()
    done = maintain(fleet, points_days=3)
    assert done.removed_rows == {"points": 3}
    assert days_of_points(fleet) == [2, 3, 4]
    assert fleet.rows() == windows
    fleet.send((7, 9.0))  # later than anyone waits for
    fleet.send((3 * DAY_NS + 7, 9.0))
    result = fleet.rollup()
    assert (result.created, result.restated, result.too_late) == (0, 3, 1)
    assert fleet.windows("1h")[0]["count"] == 2
    assert maintain(fleet, points_days=3).removed_rows == {"points": 1}
    assert maintain(fleet, points_days=30).removed_rows == {}
    fleet.send((8, 9.0))
    assert fleet.rollup().too_late == 1


def test_points_that_no_rollup_has_seen_and_those_without_a_time_stay(fleet: Fleet) -> None:
    fleet.send((1, 1.0), clock=2)
    fleet.send((DAY_NS, 1.0))
    done = maintain(fleet, points_days=3)
    assert (done.removed_rows, done.unseen_points) == ({"points": 3}, 1)
    assert sorted(str(row["date"]) for row in fleet.rows("points"))[:2] == [
        "1970-01-01",
        "2026-01-02",
    ]


def test_former_versions_go_by_the_day_they_were_superseded_on(fleet: Fleet) -> None:
    then = datetime(2026, 1, 5, 18, tzinfo=UTC)
    before = rollups_known_at(fleet.root, then)
    assert maintain(fleet, superseded_days=2).removed_rows == {}
    assert rollups_known_at(fleet.root, then).equals(before)
    fleet.now_ns = T0_NS + 8 * DAY_NS
    assert maintain(fleet, superseded_days=2).removed_rows == {"rollups_superseded": 3}
    with pytest.raises(NotKeptError, match="2026-01-07"):
        rollups_known_at(fleet.root, then)
    assert rollups_known_at(fleet.root, then + timedelta(days=3)).num_rows == len(fleet.rows())


def test_small_files_become_large_ones_and_strays_are_deleted(fleet: Fleet) -> None:
    fleet.now_ns = None
    maintain(fleet)
    for second in range(4):
        fleet.send((second, 2.0))
    stray = Path(fleet.root) / "points/date=2026-01-01/part-of-a-killed-task.parquet"
    fresh = stray.with_name("part-of-a-running-task.parquet")
    for path in (stray, fresh):
        path.write_bytes(b"PAR1")
    os.utime(stray, (OLD_S, OLD_S))
    rows = sorted(fleet.rows("points"), key=lambda row: int(row["seq"]))
    done = maintain(fleet)
    assert done.compacted["points"] == (5, 1)
    assert sorted(fleet.rows("points"), key=lambda row: int(row["seq"])) == rows
    assert done.deleted_files == {"points": 1}
    assert (stray.exists(), fresh.exists()) == (False, True)
    assert maintain(fleet).compacted == {}


def test_every_table_is_rid_of_the_files_of_the_past(tmp_path: Path) -> None:
    specs = {spec for spec in vars(schemas).values() if isinstance(spec, schemas.TableSpec)}
    assert specs | set(schemas.SUPERSEDED) == set(schemas.TABLES)
    for spec in schemas.TABLES:
        make_table(str(tmp_path), spec)
        stray = tmp_path / spec.name / "part-of-a-killed-task.parquet"
        stray.write_bytes(b"PAR1")
        os.utime(stray, (OLD_S, OLD_S))
    Maintenance(str(tmp_path), SYSTEM_CLOCK).run(Keeping())
    assert list(tmp_path.glob("*/*.parquet")) == []


def test_a_rollup_still_finds_what_was_compacted_since_it_began(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    for second in range(4):
        fleet.send((second, float(second)))
    done: list[Maintained] = []

    def meanwhile(step: str) -> None:
        if step == "touched":
            done.append(maintain(fleet))

    Rollup(fleet.root, fleet.clock, run_here, after=meanwhile).run()
    assert [each.compacted["points"] for each in done] == [(4, 1)]
    assert fleet.windows("1d")[0]["count"] == 4


def test_a_running_ingest_and_rollup_are_not_disturbed(tmp_path: Path) -> None:
    """Batches come all the while, into days that retention takes too; every point once."""
    # By the system's clock: by it the files of the past are judged, and no others may be deleted.
    fleet = Fleet(tmp_path)
    points_days = (fleet.clock.now_ns() - T0_NS) // DAY_NS - 2
    fleet.send((0, 1.0))
    fleet.rollup()
    stop = threading.Event()
    runs: list[Maintained] = []

    def upkeep() -> None:
        stopped = False
        while not stopped:  # the last begins when all has come: one of them finds something to do
            stopped = stop.is_set()
            runs.append(maintain(fleet, points_days=points_days))

    thread = threading.Thread(target=upkeep)
    thread.start()
    try:
        for number in range(25):
            fleet.send((3 * DAY_NS + number * HOUR_NS, float(number)))
            fleet.send((number, float(number)))
            if number % 8 == 7:
                fleet.rollup()
    finally:
        stop.set()
        thread.join()
    fleet.rollup()
    maintain(fleet, points_days=points_days)
    points = [row["time_ns"] for row in fleet.rows("points")]
    assert sorted(points) == [T0_NS + 3 * DAY_NS + number * HOUR_NS for number in range(25)]
    assert fleet.windows("1d")[3 * 1440]["count"] == 24
    assert fleet.windows("1d")[4 * 1440]["count"] == 1
    assert any(run.compacted for run in runs)
    assert any(run.removed_rows for run in runs)


@pytest.mark.parametrize("step", ["points_from", "retention", "compacted"])
def test_killed_at_any_step_it_is_run_again(fleet: Fleet, step: str) -> None:
    arguments = [sys.executable, "-m", "tests.support.spark_maintain_crash", fleet.root, step]
    assert subprocess.run(arguments, check=False, timeout=240).returncode == -9
    windows = fleet.rows()
    fleet.send((4 * DAY_NS + 7, 9.0))
    maintain(fleet, points_days=1, superseded_days=1)
    assert days_of_points(fleet)[-1] == 4
    assert len(fleet.rows()) == len(windows)
    table = DeltaTable(f"{fleet.root}/points")
    assert table.metadata().configuration["backhaul.points_from"] >= "2026-01-05"


def test_the_command_tells_what_it_did(fleet: Fleet, tmp_path: Path) -> None:
    common = ["maintain", "--table-root", fleet.root]
    found = json.loads(CliRunner().invoke(cli, [*common, "--points-days", "1", "--json"]).output)
    assert found["removed_rows"] == {"points": 6}
    assert found["deleted_files"]["rollups"] == 3
    assert CliRunner().invoke(cli, common).output == ""
    missing = CliRunner().invoke(cli, ["maintain", "--table-root", str(tmp_path / "none")])
    assert isinstance(missing.exception, TableMissingError)
