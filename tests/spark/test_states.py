"""The state of a window: the worst of the hours it spans, and new states without new points."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from backhaul_spark.completeness.hour_reports import hour_reports_known_at
from backhaul_spark.completeness.states import DayStates
from backhaul_spark.rollup import plan as rollup_plan
from backhaul_spark.rollup import rollup
from backhaul_spark.rollup.known_at import rollups_known_at
from backhaul_spark.rollup.rollup import Restated, Rollup, run_here
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE, ROLLUPS_TABLE, TableSpec
from tests.support.spark_fleet import HOUR_NS, MINUTE_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)


def reports(*rows: tuple[str, int, str, int | None]) -> pa.Table:
    schema = pa.schema(
        [HOUR_REPORTS_TABLE.schema.field(name) for name in ("device", "hour", "state", "run")]
    )
    found = [
        {"device": device, "hour": START + timedelta(hours=hour), "state": state, "run": run}
        for device, hour, state, run in rows
    ]
    return pa.Table.from_pylist(found, schema=schema)


def windows(*rows: tuple[str, float]) -> pa.Table:
    schema = pa.schema(
        [ROLLUPS_TABLE.schema.field("device"), ROLLUPS_TABLE.schema.field("window_start")]
    )
    found = [
        {"device": device, "window_start": START + timedelta(hours=hour)} for device, hour in rows
    ]
    return pa.Table.from_pylist(found, schema=schema)


def test_a_window_has_the_state_of_its_hour_and_a_day_its_worst() -> None:
    hours = [("A", hour, "complete", 1) for hour in range(24)]
    explained = [("B", hour, "complete" if hour else "explained", 1) for hour in range(24)]
    states = DayStates(reports(*hours, *explained, ("C", 3, "complete", 1)))
    rows = windows(("A", 3.5), ("B", 0.25), ("C", 3.0), ("C", 4.0), ("D", 3.0))
    assert states.of(rows, "1m").to_pylist() == [
        "complete",
        "explained",
        "complete",
        "waiting",
        "waiting",
    ]
    days = windows(("A", 0), ("B", 0), ("C", 0), ("D", 0))
    assert states.of(days, "1d").to_pylist() == ["complete", "explained", "waiting", "waiting"]


def test_only_what_later_runs_judged_counts_as_changed() -> None:
    rows = reports(("A", 1, "complete", 3), ("B", 5, "complete", 4), ("C", 6, "waiting", None))
    states = DayStates(rows, after_run=3)
    assert states.changed_between(None, None, range(24))
    assert states.changed_between("B", "B", range(5, 6))
    assert not states.changed_between("A", "A", range(24))
    assert not states.changed_between("B2", None, range(24))
    assert not states.changed_between(None, None, range(6, 24))


def test_without_completeness_report_everything_waits(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.send((0, 1.0))
    fleet.rollup()
    assert {row["state"] for row in fleet.rows()} == {"waiting"}


@pytest.fixture
def reported(tmp_path: Path) -> Fleet:
    """A vehicle that spoke for three hours; its third bulk message stayed away, and was of hour 1."""
    fleet = Fleet(tmp_path, T0_NS + int(0.5 * HOUR_NS))
    fleet.mark(0, 0)
    fleet.send((0, 1.0), (MINUTE_NS, 2.0))
    fleet.rollup()
    fleet.mark(1, 1)
    fleet.send((HOUR_NS, 3.0))
    fleet.skip(1)
    fleet.mark(2, 3)
    fleet.mark(3, 3)
    return fleet


def states(fleet: Fleet, width: str) -> dict[int, tuple[str, int]]:
    return {at: (r["state"], r["version"]) for at, r in sorted(fleet.windows(width).items())}


def test_a_state_changes_without_new_points_and_the_version_stays(reported: Fleet) -> None:
    assert states(reported, "1h") == {0: ("waiting", 1)}
    reported.now_ns = T0_NS + int(4.5 * HOUR_NS)
    reported.report_hours()
    reported.rollup()
    assert states(reported, "1h") == {0: ("complete", 1), 60: ("waiting", 1)}
    assert states(reported, "1m") == {0: ("complete", 1), 1: ("complete", 1), 60: ("waiting", 1)}
    assert states(reported, "1d") == {0: ("waiting", 2)}
    # The message comes at last, and brings no reading: nothing is restated but the state.
    reported._seqs["VID-001", "bulk"] = 2
    reported.send((0, b"no reading"))
    reported.now_ns += MINUTE_NS
    reported.report_hours()
    result = reported.rollup()
    assert (result.created, result.restated, result.restamped) == (0, 0, 2)
    assert states(reported, "1h") == {0: ("complete", 1), 60: ("complete", 1)}
    again = reported.rollup()
    assert again == Restated(result.ingest, result.ingest)


def test_a_state_changes_even_where_nothing_was_ingested(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, T0_NS + int(0.5 * HOUR_NS))
    fleet.mark(0, 0)
    fleet.send((0, 1.0))
    fleet.mark(2, 1)
    fleet.rollup()
    fleet.now_ns = T0_NS + int(1.5 * HOUR_NS)
    fleet.report_hours()
    assert fleet.rollup().restamped == 2  # its minute and its hour
    assert states(fleet, "1h") == {0: ("complete", 1)}


def test_no_round_says_complete_before_the_points_that_were_reported_are_in_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, T0_NS + int(1.5 * HOUR_NS))
    fleet.mark(0, 0)
    fleet.send((0, 1.0))
    fleet.send((1, 2.0))
    fleet.mark(2, 2)
    fleet.report_hours()
    monkeypatch.setattr(rollup_plan, "ROUND_POINTS", 1)
    seen: list[tuple[int, str]] = []

    class Killed(Exception):
        pass

    def after(step: str) -> None:
        if step == "rollups":
            seen.extend((r["count"], r["state"]) for r in fleet.windows("1h").values())
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            Rollup(fleet.root, fleet.clock, run_here, after).run()
    assert (1, "waiting") in seen
    assert (1, "complete") not in seen
    fleet.rollup()
    assert [(r["count"], r["state"]) for r in fleet.windows("1h").values()] == [(2, "complete")]
    assert fleet.rollup().restamped == 0


def test_a_rollup_that_looked_at_points_before_another_one_takes_nothing_back(
    reported: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows newer completeness reports, and so has states to write where it has no points."""
    other = Rollup(reported.root, reported.clock, run_here)
    reported.now_ns = T0_NS + int(4.5 * HOUR_NS)
    reported.report_hours()

    def meanwhile(root: str, spec: TableSpec) -> DeltaTable:
        reported.send((1, 9.0))
        other._points.update_incremental()  # it comes to its points only now
        other.run()
        return make_table(root, spec)

    with monkeypatch.context() as patched:
        patched.setattr(rollup, "make_table", meanwhile)
        slow = Rollup(reported.root, reported.clock, run_here)
    assert slow.run().restamped
    former = reported.rows("rollups_superseded")
    again = reported.rollup()
    assert (again.created, again.restated) == (0, 0)
    assert reported.rows("rollups_superseded") == former != []


def test_states_too_are_as_they_were_known(reported: Fleet) -> None:
    reported.now_ns = T0_NS + int(4.5 * HOUR_NS)
    reported.report_hours()
    reported.rollup()
    reported._seqs["VID-001", "bulk"] = 2
    reported.send((0, 9.0))
    reported.now_ns = T0_NS + 5 * HOUR_NS
    reported.report_hours()
    reported.rollup()
    for hours, expected in ((4.6, "waiting"), (5.0, "complete")):
        at = START + timedelta(hours=hours)
        hour = [
            row["state"]
            for row in rollups_known_at(reported.root, at).to_pylist()
            if row["width"] == "1h" and row["window_start"] == START + timedelta(hours=1)
        ]
        assert hour == [expected]
        known = hour_reports_known_at(reported.root, at).sort_by("hour").to_pylist()
        assert [row["state"] for row in known][1] == expected
    assert date(2026, 1, 1) in {row["date"] for row in reported.rows("certificates_superseded")}
