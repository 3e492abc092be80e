"""Plan a rollup's tasks: which files they read, and how the hours are cut among them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.arrays import Floats, Ints
from backhaul_spark.columns import STAMP
from backhaul_spark.rollup.tasks import MINUTES, FindTouched, SumHours, Touch

# Points that one task reads, sorts and sums in memory (about 200 bytes each while it does).
TASK_POINTS = 1 << 20
# What one commit takes on at most, as all of it is in the driver's memory: new points, and minutes of
# series that they touch (60, then 300 bytes each).
ROUND_POINTS = 1 << 24
ROUND_MINUTES = 1 << 21
# Property of points: days before this one are (being) taken out by retention.
POINTS_FROM = "backhaul.points_from"
_DAY_NS = 86_400_000_000_000


def files_of(points: DeltaTable) -> pa.Table:
    """Return path, rows, ingests and hours (first, last) of the files with believable times."""
    actions = pa.table(points.get_add_actions(flatten=True))
    actions = actions.filter(
        pc.field("partition.date") > pa.scalar(0, pa.int32()).cast(pa.date32())
    )

    def hours(name: str) -> pa.Array:
        stamps = actions.column(name).cast(STAMP).cast(pa.int64()).to_numpy()
        return pa.array(np.floor_divide(stamps, 3_600_000_000))

    return pa.table(
        {
            "path": pa.array([unquote(p) for p in actions.column("path").to_pylist()], pa.string()),
            "rows": actions.column("num_records").cast(pa.int64()),
            "first_ingest": actions.column("min.ingest").cast(pa.int64()),
            "last_ingest": actions.column("max.ingest").cast(pa.int64()),
            "first_hour": hours("min.time"),
            "last_hour": hours("max.time"),
        }
    )


def last_to_look_at(files: pa.Table, done: int, target: int) -> int:
    """Return up to which ingest one round looks: about ROUND_POINTS points after `done`, at least one ingest."""
    fresh = files.filter(pc.field("last_ingest") > done).sort_by("last_ingest")
    many = np.flatnonzero(np.cumsum(fresh.column("rows").to_numpy()) >= ROUND_POINTS)
    return fresh.column("last_ingest")[many[0]].as_py() if len(many) else target


def touched_since(
    points: DeltaTable,
    files: pa.Table,
    ingests: tuple[int, int],
    run_tasks: Callable[[Sequence[FindTouched]], list[pa.Table]],
    touch: Touch = MINUTES,
    most: int | None = None,
) -> tuple[pa.Table, int]:
    """Return the windows that one round takes on (columns of `touch.schema`), and up to which ingest it goes.

    `ingests`: up to which all was looked at, and the last one there is; `most`: of windows, other than ROUND_MINUTES.
    """
    done, last = ingests
    last = last_to_look_at(files, done, last)
    fresh = files.filter((pc.field("last_ingest") > done) & (pc.field("first_ingest") <= last))
    uri = points.table_uri
    finds = [FindTouched(uri, tuple(paths), done, last, touch) for paths in bundles(fresh)]
    touched = touch.firsts(run_tasks(finds))
    target = last_to_sum_up(touched, last, most)
    return touched.filter(pc.field("ingest") <= target), target


def points_from(points: DeltaTable) -> date | None:
    """Return the first day of which the table has, or had, all points; None: retention has never taken any."""
    day = points.metadata().configuration.get(POINTS_FROM)
    return date.fromisoformat(day) if day else None


def first_window(points: DeltaTable, width_ns: int) -> int:
    """Return the first window of a width, numbered since 1970, of which the table has, or had, all points."""
    day = points_from(points)
    return (day - date(1970, 1, 1)).days * (_DAY_NS // width_ns) if day else -(2**63 // width_ns)


def last_to_sum_up(touched: pa.Table, last: int, most: int | None = None) -> int:
    """Return up to which ingest one round goes: about `most` (ROUND_MINUTES) rows, at least one ingest."""
    most = ROUND_MINUTES if most is None else most
    ingests = np.sort(touched.column("ingest").to_numpy())
    if len(ingests) <= most:
        return last
    return max(int(ingests[most]) - 1, int(ingests[0]))


def plan_sums(uri: str, files: pa.Table, touched: pa.Table, ingest: int) -> list[SumHours]:
    """Cut the touched hours into tasks of about TASK_POINTS points up to `ingest`, with their files.

    An hour with more points than that is cut by device; one device's hour is never cut.
    """
    if not touched.num_rows:
        return []
    files = files.filter(pc.field("first_ingest") <= ingest)
    hour = np.floor_divide(touched.column("minute").to_numpy(), 60)
    hours = np.unique(hour)
    points = _points_an_hour(files, hours)
    number = np.floor_divide(np.cumsum(points) - points, TASK_POINTS)  # the task of each hour
    tasks = []
    for group in np.unique(number).tolist():
        chosen = hours[number == group]
        rows = touched.filter(pa.array(np.isin(hour, chosen)))
        paths = paths_within(files, chosen)
        pieces = int(points[number == group].sum() // TASK_POINTS) + 1
        span = int(chosen[0]), int(chosen[-1])
        tasks += [SumHours(uri, paths, *span, ingest, part) for part in _by_device(rows, pieces)]
    return tasks


def _points_an_hour(files: pa.Table, hours: Ints) -> Floats:
    """Estimate the points of each hour, taking a file's as spread evenly over its time."""
    estimate = np.zeros(len(hours))
    columns = (files.column(name).to_numpy() for name in ("first_hour", "last_hour", "rows"))
    for first, last, rows in zip(*columns, strict=True):
        inside = (hours >= first) & (hours <= last)
        estimate[inside] += rows / (last - first + 1)
    return estimate


def paths_within(files: pa.Table, hours: Ints) -> tuple[str, ...]:
    """Return the paths of the files (as of files_of) that may have points of some hours (n,), int64, sorted."""
    first, last = files.column("first_hour").to_numpy(), files.column("last_hour").to_numpy()
    # Of the sorted hours, more are <= last than are < first: one lies within.
    inside = np.searchsorted(hours, last, "right") > np.searchsorted(hours, first, "left")
    return tuple(files.filter(pa.array(inside)).column("path").to_pylist())


def _by_device(touched: pa.Table, pieces: int) -> list[pa.Table]:
    devices = np.asarray(sorted(touched.column("device").unique().to_pylist()), dtype=object)
    parts = np.array_split(devices, min(pieces, len(devices)))
    if len(parts) == 1:
        return [touched]
    column = touched.column("device")
    return [touched.filter(pc.is_in(column, value_set=pa.array(part))) for part in parts]


def bundles(files: pa.Table) -> list[list[str]]:
    """Group files (as of files_of) into tasks of about TASK_POINTS rows; return their paths."""
    rows = files.column("rows").to_numpy()
    number = np.floor_divide(np.cumsum(rows) - rows, TASK_POINTS)
    paths = np.asarray(files.column("path").to_pylist(), dtype=object)
    return [paths[number == group].tolist() for group in np.unique(number).tolist()]
