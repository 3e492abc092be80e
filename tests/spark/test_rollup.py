"""Rollups: what a window holds, and that exactly the touched windows are restated."""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.columns import packed, unpacked
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.rollup import plan as rollup_plan
from backhaul_spark.rollup import rollup
from backhaul_spark.rollup.files import KEYS
from backhaul_spark.rollup.plan import plan_sums
from backhaul_spark.rollup.rollup import ROLLUP_APP, Restated, Rollup, run_here
from backhaul_spark.rollup.tasks import MINUTES
from backhaul_spark.tables import rewrite
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.schemas import POINTS_TABLE
from tests.support.spark_fleet import MINUTE_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_window_says_what_its_points_say(fleet: Fleet) -> None:
    fleet.send((0, 3.0), (10, 1.0), (20, 8.0), (MINUTE_NS, 5.0))
    assert fleet.rollup() == Restated(0, fleet.ingested, created=4)
    first, second = fleet.windows()[0], fleet.windows()[1]
    assert (first["count"], first["min"], first["max"], first["sum"]) == (3, 1.0, 8.0, 12.0)
    assert (first["first"], first["last"], first["mean"]) == (3.0, 8.0, 4.0)
    assert (first["first_time_ns"], first["last_time_ns"]) == (T0_NS, T0_NS + 20)
    assert second["count"] == 1
    hour = fleet.windows("1h")[0]
    assert (hour["count"], hour["last"], hour["sum"], hour["version"]) == (4, 5.0, 17.0, 1)


def test_late_points_restate_exactly_the_windows_they_touch(fleet: Fleet) -> None:
    for minute in (0, 1, 2, 61, 130):
        fleet.send((minute * MINUTE_NS, float(minute)))
    fleet.send((0, 1.0), device="VID-002")
    fleet.rollup()
    fleet.send((MINUTE_NS + 5, 7.0), (61 * MINUTE_NS + 1, 9.0), (200 * MINUTE_NS, 3.0))
    result = fleet.rollup()
    minutes, hours = fleet.windows(), fleet.windows("1h")
    assert {m: row["version"] for m, row in minutes.items()} == {
        0: 1,
        1: 2,
        2: 1,
        61: 2,
        130: 1,
        200: 1,
    }
    assert {m: row["version"] for m, row in hours.items()} == {0: 2, 60: 2, 120: 1, 180: 1}
    assert (result.created, result.restated) == (2, 5)
    assert (minutes[1]["count"], minutes[1]["last"]) == (2, 7.0)
    [day] = fleet.windows("1d").values()
    assert (day["count"], day["first"], day["last"], day["version"]) == (8, 0.0, 3.0, 2)
    assert day["sum"] == 0.0 + 1.0 + 2.0 + 7.0 + 61.0 + 9.0 + 130.0 + 3.0
    assert hours[0]["count"] == 4
    assert fleet.windows(device="VID-002")[0]["version"] == 1


def test_restated_windows_equal_a_recomputation_from_scratch_bit_for_bit(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(30):
        at = (step * 7919) % 5 * 30 * MINUTE_NS + (step * 104729) % 1000
        fleet.send(*((at + i * 1_000_000_000, 0.1 * (step + i)) for i in range(50)))
        if step % 6 == 5:
            fleet.rollup()
    restated = {w: fleet.windows(w) for w in ("1m", "1h", "1d")}
    (tmp_path / "rollups").rename(tmp_path / "rollups-before")
    monkeypatch.setattr(rollup_plan, "TASK_POINTS", 200)  # cut into other tasks, same answer
    fleet.rollup()
    for width, before in restated.items():
        after = fleet.windows(width)
        assert after.keys() == before.keys()
        for minute, row in before.items():
            for name in ("count", "min", "max", "mean", "sum", "first", "last"):
                assert row[name] == after[minute][name]


def test_days_are_the_same_however_many_hours_are_summed_up_at_a_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "DAY_HOURS", 2)
    for hour in range(3):
        for device in ("VID-001", "VID-002", "VID-003"):
            for type_ in ("soc", "temp", "volt")[: int(device[-1])]:
                at = hour * 60 * MINUTE_NS
                fleet.send((at, 1.0), (at + 1, 2.0), device=device, type_=type_)
        fleet.rollup()
    days = sorted(
        (row["device"], row["type"], row["count"], row["sum"], row["version"])
        for row in fleet.rows()
        if row["width"] == "1d"
    )
    assert days == [
        (device, type_, 6, 9.0, 3)
        for device, types in (
            ("VID-001", ("soc",)),
            ("VID-002", ("soc", "temp")),
            ("VID-003", ("soc", "temp", "volt")),
        )
        for type_ in types
    ]


def test_nothing_new_nothing_done(fleet: Fleet) -> None:
    fleet.send((0, 1.0))
    fleet.rollup()
    version = DeltaTable(f"{fleet.root}/rollups").version()
    result = fleet.rollup()
    assert (result.created, result.restated) == (0, 0)
    assert DeltaTable(f"{fleet.root}/rollups").version() == version


def test_an_ingest_without_readings_is_passed_over_once(fleet: Fleet) -> None:
    fleet.send((0, b"bytes are no reading"))
    assert fleet.rollup().created == 0
    assert fleet.rollup().after_ingest == fleet.ingested


def test_integers_signed_and_unsigned_sum_as_numbers(fleet: Fleet) -> None:
    fleet.send((0, -5), (1, 2**64 - 1), (2, 7))
    fleet.rollup()
    row = fleet.windows()[0]
    assert (row["count"], row["min"], row["max"]) == (3, -5.0, float(2**64 - 1))


def test_nan_is_counted_apart_and_infinity_is_a_number(fleet: Fleet) -> None:
    fleet.send((0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0))
    fleet.rollup()
    row = fleet.windows()[0]
    assert (row["count"], row["nans"], row["max"], row["last"]) == (3, 1, math.inf, 2.0)


def test_text_has_first_and_last_and_no_sum(fleet: Fleet) -> None:
    fleet.send((0, "idle"), (1, "drive"), (2, "park"), type_="mode")
    fleet.rollup()
    row = fleet.windows()[0]
    assert (row["count"], row["texts"], row["mean"]) == (0, 3, None)
    assert (row["first_text"], row["last_text"]) == ("idle", "park")


def test_a_head_sent_ahead_and_again_in_a_frame_is_one_reading(fleet: Fleet) -> None:
    fleet.send_alone(20, 8.0)
    fleet.send((0, 3.0), (20, 8.0))
    fleet.rollup()
    assert fleet.windows()[0]["count"] == 2
    fleet.send_alone(30, 8.0)
    fleet.rollup()
    assert fleet.windows()[0]["count"] == 3


def test_a_head_sent_again_when_ends_compare_is_one_reading(fleet: Fleet) -> None:
    for value in (8.0, 8.0, 9.0, "on", "off", "on"):
        fleet.send_alone(20, value)
    fleet.send((20, 8.0), (20, 8.0), (20, "off"), (21, "on"))
    fleet.rollup()
    row = fleet.windows()[0]
    assert (row["count"], row["texts"]) == (3, 3)


def test_deleted_points_and_unset_clocks_are_in_no_window(fleet: Fleet) -> None:
    fleet.send_alone(0, 1.0, tombstone=1)
    fleet.send((0, 1.0), clock=2)
    assert fleet.rollup().created == 0


def test_two_rollups_at_a_time_one_of_them_gives_way(fleet: Fleet) -> None:
    fleet.send((0, 1.0))
    fleet.rollup()
    fleet.send((5, 2.0))
    slow = Rollup(fleet.root, SYSTEM_CLOCK, run_here)
    fleet.rollup()
    with pytest.raises(TablesBusyError, match="meanwhile"):
        slow.run()
    assert fleet.windows()[0]["version"] == 2


def test_hours_with_many_points_are_cut_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup_plan, "TASK_POINTS", 100)
    files = pa.table(
        {
            "path": ["a", "b"],
            "rows": [300, 10],
            "first_ingest": [1, 1],
            "last_ingest": [1, 1],
            "first_hour": [5, 9],
            "last_hour": [5, 9],
        }
    )
    touched = pa.table(
        {
            "device": ["A", "B", "C", "A"],
            "node": ["n"] * 4,
            "type": ["t"] * 4,
            "key": [""] * 4,
            "minute": [300, 301, 302, 540],
        }
    )
    tasks = plan_sums("uri", files, touched, 1)
    assert [(t.first, t.last, t.paths) for t in tasks] == [(5, 5, ("a",))] * 3 + [(9, 9, ("b",))]
    assert [t.touched.column("device").to_pylist() for t in tasks] == [["A"], ["B"], ["C"], ["A"]]


def test_what_a_task_sends_back_is_small_though_its_table_is_in_many_slices() -> None:
    """A day of 1,000 vehicles was 6 GB in the driver's JVM, whose heap is 1."""
    minutes = range(100_000)
    *names, ingest = ([value] * 100_000 for value in ("VID-001", "n", "t", "", 1))
    rows = pa.table([*names, minutes, ingest], MINUTES.schema)
    touched = rows.group_by(rows.column_names).aggregate([]).select(rows.column_names)
    assert touched.column("minute").num_chunks > 1
    sent = packed(touched, "zstd")
    assert unpacked(sent).equals(touched)
    assert len(sent) < touched.nbytes / 3 < len(pickle.dumps(touched)) / 10


@pytest.mark.parametrize(("points", "minutes"), [(4, 100), (100, 3), (1, 1)])
def test_what_is_much_is_rolled_up_in_rounds_of_whole_ingests(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: int, minutes: int
) -> None:
    for step in range(4):
        fleet.send(*((m * MINUTE_NS + step, step + 0.1) for m in range(step, step + 3)))
    fleet.send((30_000_000_000, 9.0))
    fleet.send((0, 7.0), device="VID-002")
    if points > 10:  # one file of all ingests
        compact(fleet.root, POINTS_TABLE, SYSTEM_CLOCK)
    monkeypatch.setattr(rollup_plan, "ROUND_POINTS", points)
    monkeypatch.setattr(rollup_plan, "ROUND_MINUTES", minutes)
    rounds: list[int] = []

    def after(step: str) -> None:
        if step == "rollups":
            table = DeltaTable(f"{fleet.root}/rollups")
            rounds.append(table.transaction_version(ROLLUP_APP) or 0)
            ingests = [r["ingest"] for r in fleet.rows("points") if r["device"] == "VID-001"]
            taken_in = sum(ingest <= rounds[-1] for ingest in ingests)
            assert fleet.windows("1d")[0]["count"] == taken_in

    result = Rollup(fleet.root, SYSTEM_CLOCK, run_here, after).run()
    assert len(rounds) > 1
    assert (result.after_ingest, result.ingest, result.created) == (0, fleet.ingested, 11)
    versions = [
        (*(row[name] for name in KEYS), row["count"])
        for row in fleet.rows() + fleet.rows("rollups_superseded")
    ]
    assert len(versions) == result.created + result.restated
    assert len(set(versions)) == len(versions), "a version without a new point"
    in_rounds = _figures(fleet)
    (tmp_path / "rollups").rename(tmp_path / "rollups-before")
    monkeypatch.undo()
    assert fleet.rollup().created == result.created
    assert _figures(fleet) == in_rounds


def _figures(fleet: Fleet) -> list[tuple[object, ...]]:
    names = ("width", "device", "window_start", "count", "sum", "mean", "first", "last")
    return sorted(tuple(row[name] for name in names) for row in fleet.rows())


def test_a_late_device_has_only_its_own_files_written_anew(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "FILE_ROWS", 8)
    for number in range(12):
        device = f"VID-{number:03}"
        fleet.send(*((m * MINUTE_NS, 1.0) for m in range(8)), device=device)
    fleet.rollup()
    before = set(DeltaTable(f"{fleet.root}/rollups").file_uris())
    fleet.send((5, 2.0), device="VID-007")
    assert fleet.rollup().restated == 3
    after = set(DeltaTable(f"{fleet.root}/rollups").file_uris())
    assert len([path for path in before if "width=1m" in path]) == 12
    assert len([path for path in before - after if "width=1m" in path]) == 1
    assert len(before - after) == len(after - before) == 3
