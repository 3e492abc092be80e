"""Late points: what was known before stays to be asked for, and what changed is listed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from backhaul_spark.cli.main import cli
from backhaul_spark.errors import NotKeptError, TablesBusyError
from backhaul_spark.rollup.known_at import restated_since, rollups_known_at
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables.schemas import ROLLUPS_TABLE, superseded_of
from tests.support.spark_fleet import DAY_NS, HOUR_NS, MINUTE_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)


def hours(count: float) -> datetime:
    return START + timedelta(hours=count)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Two vehicles, rolled up at hours 5, 6 and 30; the second one late the last time."""
    fleet = Fleet(tmp_path)
    _rolled_up(fleet, 5, (0, 1.0), (MINUTE_NS, 2.0))
    _rolled_up(fleet, 6, (0, 5.0), device="VID-002")
    _rolled_up(fleet, 30, (10, 7.0), (2 * HOUR_NS, 9.0), device="VID-002")
    return fleet


def _rolled_up(
    fleet: Fleet, hour: float, *points: tuple[int, float], device: str = "VID-001"
) -> None:
    fleet.send(*points, device=device)
    fleet.now_ns = T0_NS + int(hour * HOUR_NS)
    fleet.rollup()


def figures(rows: pa.Table) -> dict[tuple[str, str, float], tuple[float, int]]:
    """Return sum and version by device, width and hours after T0."""
    return {
        (row["device"], row["width"], (row["window_start"] - START) / timedelta(hours=1)): (
            row["sum"],
            row["version"],
        )
        for row in rows.to_pylist()
    }


def test_the_rollups_can_be_asked_as_they_were_known(fleet: Fleet) -> None:
    one = {
        ("VID-001", "1m", 0.0): (1.0, 1),
        ("VID-001", "1m", 1 / 60): (2.0, 1),
        ("VID-001", "1h", 0.0): (3.0, 1),
        ("VID-001", "1d", 0.0): (3.0, 1),
    }
    two = {("VID-002", width, 0.0): (5.0, 1) for width in ("1m", "1h", "1d")}
    assert figures(rollups_known_at(fleet.root, hours(4))) == {}
    assert figures(rollups_known_at(fleet.root, hours(5))) == one
    assert figures(rollups_known_at(fleet.root, hours(29))) == one | two
    now = figures(rollups_known_at(fleet.root, hours(30)))
    assert now == figures(DeltaTable(f"{fleet.root}/rollups").to_pyarrow_table())
    assert now["VID-002", "1d", 0.0] == (21.0, 2)


def test_what_was_known_outlives_the_files_of_former_versions(fleet: Fleet) -> None:
    before = rollups_known_at(fleet.root, hours(29))
    for name in ("rollups", "rollups_superseded"):
        DeltaTable(f"{fleet.root}/{name}").vacuum(
            0, dry_run=False, enforce_retention_duration=False, full=True
        )
    assert rollups_known_at(fleet.root, hours(29)).equals(before)


def test_restated_lists_what_changed_with_old_and_new_figures(fleet: Fleet) -> None:
    found = restated_since(fleet.root, hours(29))
    told = [
        (
            c.width,
            (c.window_start - START) / timedelta(hours=1),
            c.old and c.old["sum"],
            c.new["sum"],
        )
        for c in found
    ]
    assert told == [
        ("1d", 0.0, 5.0, 21.0),
        ("1h", 0.0, 5.0, 12.0),
        ("1h", 2.0, None, 9.0),
        ("1m", 0.0, 5.0, 12.0),
        ("1m", 2.0, None, 9.0),
    ]
    assert {c.device for c in found} == {"VID-002"}
    assert len(restated_since(fleet.root, hours(29), width="1h")) == 2
    assert restated_since(fleet.root, hours(29), device="VID-001") == []
    assert restated_since(fleet.root, hours(30)) == []


def test_a_day_that_had_not_ended_was_bound_to_change(fleet: Fleet) -> None:
    ended = restated_since(fleet.root, hours(7), width="1d")
    every = restated_since(fleet.root, hours(7), width="1d", unfinished=True)
    assert (len(ended), len(every)) == (0, 1)


def test_the_commands_tell_it(fleet: Fleet) -> None:
    common = ["--table-root", fleet.root]
    text = CliRunner().invoke(cli, ["restated", *common, "--since", "2026-01-02T05:00Z"]).output
    assert "5 windows changed" in text
    assert "VID-002 battery.soc 1d 2026-01-01T00:00:00+00:00  n 1 mean 5 (version 1)  ->" in text
    since = ["--since", "2026-01-02T05:00Z", "--json"]
    found = json.loads(CliRunner().invoke(cli, ["restated", *common, *since]).output)
    assert [w["old"] and w["old"]["count"] for w in found["windows"]] == [1, 1, None, 1, None]
    question = ["history", *common, "--device", "VID-002", "--series", "battery.soc", "--json"]
    question += ["--resolution", "1d"]
    now, then = (
        json.loads(CliRunner().invoke(cli, [*question, *more]).output)["rows"]
        for more in ([], ["--as-known-at", "2026-01-02T05:00Z"])
    )
    assert (now[0]["count"], then[0]["count"]) == (3, 1)


def test_a_clock_that_goes_back_leaves_no_time_without_an_answer(fleet: Fleet) -> None:
    _rolled_up(fleet, 29, (20, 1.0), device="VID-002")
    [row] = [r for r in fleet.rows() if r["width"] == "1d" and r["device"] == "VID-002"]
    assert row["restated_at"] == hours(30) + timedelta(microseconds=1)
    assert figures(rollups_known_at(fleet.root, hours(30)))["VID-002", "1d", 0.0] == (21.0, 2)


def test_what_nobody_kept_is_refused_and_not_made_up(tmp_path: Path, fleet: Fleet) -> None:
    (tmp_path / "rollups_superseded").rename(tmp_path / "away")
    with pytest.raises(NotKeptError, match="the next run"):
        rollups_known_at(fleet.root, hours(29))
    _rolled_up(fleet, 40, (30, 1.0))
    with pytest.raises(NotKeptError, match="2026-01-02T16:00:00"):
        rollups_known_at(fleet.root, hours(29))
    assert rollups_known_at(fleet.root, hours(41)).num_rows == len(fleet.rows())


STEPS = ["touched", "summed", "files", "superseded", "rollups"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_each_window_is_restated_once(tmp_path: Path, step: str) -> None:
    fleet = Fleet(tmp_path, T0_NS + DAY_NS)
    fleet.send((0, 1.0), (HOUR_NS, 2.0))
    fleet.rollup()
    fleet.send((5, 3.0), (3 * HOUR_NS, 4.0))
    arguments = [sys.executable, "-m", "tests.support.spark_rollup_crash", fleet.root, step]
    assert subprocess.run(arguments, check=False, timeout=240).returncode == -9
    before = rollups_known_at(fleet.root, datetime(2100, 1, 1, tzinfo=UTC))
    assert before.num_rows == len(fleet.rows())  # a reader sees whole rollups, none doubled
    fleet.now_ns = T0_NS + 2 * DAY_NS
    fleet.rollup()
    fleet.rollup()
    assert {m: (r["count"], r["version"]) for m, r in fleet.windows("1h").items()} == {
        0: (2, 2),
        60: (1, 1),
        180: (1, 1),
    }
    assert fleet.windows("1d")[0]["version"] == 2
    old = fleet.rows("rollups_superseded")
    assert sorted((r["width"], r["version"], r["sum"]) for r in old) == [
        ("1d", 1, 3.0),
        ("1h", 1, 1.0),
        ("1m", 1, 1.0),
    ]


def test_a_run_thought_dead_keeps_nothing_once_another_took_over(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, T0_NS + DAY_NS)
    fleet.send((0, 1.0))
    fleet.rollup()
    fleet.send((5, 3.0))

    def meanwhile(step: str) -> None:
        if step == "superseded":
            fleet.rollup()

    with pytest.raises(TablesBusyError, match="meanwhile"):
        Rollup(fleet.root, fleet.clock, run_here, meanwhile).run()
    assert len(fleet.rows("rollups_superseded")) == 3
    assert fleet.windows()[0]["version"] == 2


def test_rows_that_were_never_committed_count_for_nobody(fleet: Fleet) -> None:
    table = DeltaTable(f"{fleet.root}/rollups_superseded")
    row: dict[str, Any] = fleet.rows("rollups_superseded")[0]
    row |= {"superseded_by": row["superseded_by"] + 1, "device": "VID-999"}
    write_deltalake(
        table,
        pa.Table.from_pylist([row], schema=superseded_of(ROLLUPS_TABLE).schema),
        mode="append",
    )
    known = rollups_known_at(fleet.root, hours(29))
    assert "VID-999" not in known.column("device").to_pylist()
    fleet.rollup()
    assert all(row["device"] != "VID-999" for row in fleet.rows("rollups_superseded"))
