"""Restate the rollups: exactly the windows that points have come into since the last time.

Every point carries the number of the ingest that brought it, and the rollups table remembers, in
the very commit that restates, up to which ingest it has looked. So nothing is looked at twice and
nothing is forgotten, whatever crashed. Driver side; the tasks are in rollup_tasks.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from backhaul_spark.errors import TablesBusy
from backhaul_spark.messages import STAMP
from backhaul_spark.rollup_tasks import TOUCHED, FindTouched, SumHours
from backhaul_spark.schemas import POINTS_TABLE, ROLLUPS_TABLE
from backhaul_spark.tables import committed_ingest, make_table, open_table, table_uri
from backhaul_spark.windows import SERIES, WIDTHS_NS, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from backhaul_spark.clock import Clock

ROLLUP_APP = "backhaul-rollup"
# Points that one task reads, sorts and sums in memory (about 200 bytes each while it does).
TASK_POINTS = 1 << 20

Task = FindTouched | SumHours


@dataclass(frozen=True, slots=True)
class Restated:
    """What one rollup did: windows by kind, and the ingests it looked at (after, up to)."""

    after_ingest: int
    ingest: int
    created: int = 0
    restated: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the numbers by name."""
        return asdict(self)


def run_here(tasks: Sequence[Task]) -> list[pa.Table]:
    """Run the tasks in this process, one after the other."""
    return [task.run() for task in tasks]


def run_on(spark: SparkSession) -> Callable[[Sequence[Task]], list[pa.Table]]:
    """Return a runner that spreads tasks over Spark's executors."""

    def run(tasks: Sequence[Task]) -> list[pa.Table]:
        if not tasks:
            return []
        # An RDD, as each task shall take along its own touched windows and not those of all.
        return spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda t: t.run()).collect()

    return run


class Rollup:
    """One restatement of the rollups under a table root.

    Args:
        root: the table root.
        clock: for `restated_at`.
        runner: runs tasks and returns their tables, in order.
        after: called with the name of each step when it is done; tests end the process there.
    """

    def __init__(
        self,
        root: str,
        clock: Clock,
        runner: Callable[[Sequence[Task]], list[pa.Table]],
        after: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._root = root
        self._clock = clock
        self._run_tasks = runner
        self._after = after
        self._points = open_table(root, POINTS_TABLE)
        self._rollups = make_table(root, ROLLUPS_TABLE)

    def run(self) -> Restated:
        """Restate what is due and commit it; does nothing when nothing came in.

        Raises:
            TablesBusy: another rollup committed meanwhile. Its work stands; run again later.
        """
        done = self._rollups.transaction_version(ROLLUP_APP) or 0
        target = committed_ingest(self._points)
        if target <= done:
            return Restated(done, target)
        uri = table_uri(self._root, POINTS_TABLE.name)
        files = files_of(self._points)
        fresh = files.filter(pc.field("last_ingest") > done)
        finds = [FindTouched(uri, tuple(paths), done) for paths in _bundles(fresh)]
        touched = pa.concat_tables([TOUCHED.empty_table(), *self._run_tasks(finds)])
        touched = touched.group_by(TOUCHED.names).aggregate([]).select(TOUCHED.names)
        self._after("touched")
        windows = self._run_tasks(plan_sums(uri, files, touched))
        self._after("summed")
        return self._commit(pa.concat_tables([WINDOWS.empty_table(), *windows]), done, target)

    def _commit(self, rows: pa.Table, done: int, target: int) -> Restated:
        properties = CommitProperties(app_transactions=[Transaction(ROLLUP_APP, target)])
        try:
            if not rows.num_rows:
                self._rollups.create_write_transaction(
                    [],
                    mode="append",
                    schema=self._rollups.schema(),
                    partition_by=list(ROLLUPS_TABLE.partition_by),
                    commit_properties=properties,
                )
                return Restated(done, target)
            known = self._known(rows)
            all_rows, restated = versioned(self._stamped(rows, target), known)
            self._replace(all_rows, properties)
        except CommitFailedError as error:
            raise TablesBusy(self._root, "another rollup has committed meanwhile") from error
        return Restated(
            done,
            target,
            created=rows.num_rows - restated,
            restated=restated,
        )

    def _stamped(self, rows: pa.Table, target: int) -> pa.Table:
        now_us = self._clock.now_ns() // 1000
        extra = {
            "version": pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows),
            "restated_at": pa.repeat(pa.scalar(now_us).cast(STAMP), rows.num_rows),
            "ingest": pa.repeat(pa.scalar(target, pa.int64()), rows.num_rows),
            "date": rows.column("window_start").cast(pa.date32()),
        }
        for name, column in extra.items():
            rows = rows.append_column(name, column)
        return rows.select(ROLLUPS_TABLE.schema.names).cast(ROLLUPS_TABLE.schema)

    def _known(self, rows: pa.Table) -> pa.Table:
        """Return what the table holds of the days that `rows` are in."""
        days = pc.unique(rows.column("window_start").cast(pa.date32()))
        wanted = pc.field("date").isin(days) & pc.field("width").isin(list(WIDTHS_NS))
        return self._rollups.to_pyarrow_dataset().to_table(filter=wanted)

    def _replace(self, rows: pa.Table, properties: CommitProperties) -> None:
        """Write `rows` in the place of all rows of their days, in one commit.

        Not delta-rs's MERGE: it leaves files whose text columns Arrow cannot filter (string
        views), so that pandas could not read the table with a filter.
        """
        days = ", ".join(f"'{day}'" for day in sorted(rows.column("date").unique().to_pylist()))
        write_deltalake(
            self._rollups,
            rows,
            mode="overwrite",
            predicate=f"date in ({days})",
            commit_properties=properties,
        )


def versioned(rows: pa.Table, known: pa.Table) -> tuple[pa.Table, int]:
    """Return new rows and the known ones that they do not replace, sorted, and how many they do.

    A row that replaces another gets its version plus one.
    """
    keys = ["width", *SERIES, "window_start"]
    before = known.select([*keys, "version"]).rename_columns([*keys, "before"])
    joined = rows.join(before, keys, join_type="left outer")
    replaced = joined.num_rows - joined.column("before").null_count
    version = pc.add(pc.fill_null(joined.column("before"), 0), 1)
    position = joined.schema.get_field_index("version")
    joined = joined.set_column(position, "version", version).select(rows.column_names)
    kept = known.join(rows.select(keys), keys, join_type="left anti").select(rows.column_names)
    result = pa.concat_tables([joined.cast(rows.schema), kept.cast(rows.schema)])
    return result.sort_by([(name, "ascending") for name in keys]), replaced


def files_of(points: DeltaTable) -> pa.Table:
    """Return path, rows, last_ingest, first_hour and last_hour of the files with believable times."""
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
            "last_ingest": actions.column("max.ingest").cast(pa.int64()),
            "first_hour": hours("min.time"),
            "last_hour": hours("max.time"),
        }
    )


def plan_sums(uri: str, files: pa.Table, touched: pa.Table) -> list[SumHours]:
    """Cut the touched hours into tasks of about TASK_POINTS points, with the files they need.

    An hour with more points than that is cut by device; one device's hour is never cut.
    """
    if not touched.num_rows:
        return []
    hour = np.floor_divide(touched.column("minute").to_numpy(), 60)
    hours = np.unique(hour)
    points = _points_an_hour(files, hours)
    number = np.floor_divide(np.cumsum(points) - points, TASK_POINTS)  # the task of each hour
    tasks = []
    for group in np.unique(number).tolist():
        chosen = hours[number == group]
        rows = touched.filter(pa.array(np.isin(hour, chosen)))
        paths = _paths_within(files, chosen)
        pieces = int(points[number == group].sum() // TASK_POINTS) + 1
        span = int(chosen[0]), int(chosen[-1])
        tasks += [SumHours(uri, paths, *span, part) for part in _by_device(rows, pieces)]
    return tasks


def _points_an_hour(files: pa.Table, hours: NDArray[np.int64]) -> NDArray[np.float64]:
    """Estimate the points of each hour, taking a file's as spread evenly over its time."""
    estimate = np.zeros(len(hours))
    columns = (files.column(name).to_numpy() for name in ("first_hour", "last_hour", "rows"))
    for first, last, rows in zip(*columns, strict=True):
        inside = (hours >= first) & (hours <= last)
        estimate[inside] += rows / (last - first + 1)
    return estimate


def _paths_within(files: pa.Table, hours: NDArray[np.int64]) -> tuple[str, ...]:
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


def _bundles(files: pa.Table) -> list[list[str]]:
    """Group files into tasks of about TASK_POINTS rows."""
    rows = files.column("rows").to_numpy()
    number = np.floor_divide(np.cumsum(rows) - rows, TASK_POINTS)
    paths = np.asarray(files.column("path").to_pylist(), dtype=object)
    return [paths[number == group].tolist() for group in np.unique(number).tolist()]
