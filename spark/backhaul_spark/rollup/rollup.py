"""Restate the rollups: exactly the windows that points have come into since the last time.

Every point carries the number of the ingest that brought it, and the rollups table remembers, in
the very commit that restates, up to which ingest it has looked. So nothing is looked at twice and
nothing is forgotten, whatever crashed. Driver side; the tasks are in rollup/tasks.py.

What has come in since is taken on in rounds of whole ingests, each with a commit of its own, so that
a rollup that has not run for days does not need the memory of days.

Order of a round, and what a crash after each step leaves behind:

1. windows are summed up                    nothing
2. files are written                        nobody refers to them; `maintain` clears them away
3. the rows they supersede are kept         rows under a number that rollups does not have; the next
                                            run takes them out
4. the rollups commit                       all of it has happened
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.columns import packed, unpacked
from backhaul_spark.completeness.states import DayStates, States
from backhaul_spark.rollup.days import sum_days
from backhaul_spark.rollup.files import RollupFiles
from backhaul_spark.rollup.plan import files_of, first_window, plan_sums, touched_since
from backhaul_spark.rollup.rows import SERIES
from backhaul_spark.rollup.tasks import MINUTES
from backhaul_spark.rollup.windows import WINDOWS
from backhaul_spark.tables.delta import (
    by_device,
    commit_files,
    committed_ingest,
    dataset_of,
    make_table,
    one_at_a_time,
    open_if_there,
    open_table,
    table_uri,
)
from backhaul_spark.tables.schemas import (
    HOUR_REPORTS_TABLE,
    POINTS_TABLE,
    ROLLUPS_TABLE,
)
from backhaul_spark.tables.superseded import STAMP_APP, Superseded, next_stamp_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backhaul_runtime.clock import Clock

ROLLUP_APP = "backhaul-rollup"
# Up to which run of the completeness reports their states are in.
STATES_APP = "backhaul-rollup-states"
# New hours of series that are summed up to days at a time, about 1 KB each with a day's others.
DAY_HOURS = 1 << 16


class Task(Protocol):
    """Work that an executor does."""

    def run(self) -> pa.Table:
        """Return the result, in rows."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round, or of several: rows by kind, and the ingests it covered (after, up to)."""

    after_ingest: int
    ingest: int
    created: int = 0
    restated: int = 0
    too_late: int = 0
    """Windows that points came into whose day has been taken out by retention: they stay as they are."""

    def then(self, later: Self) -> Self:
        """Return the sum of both results."""
        names = {each.name for each in fields(self)} - {"after_ingest", "ingest"}
        sums = {name: getattr(self, name) + getattr(later, name) for name in names}
        return replace(later, after_ingest=self.after_ingest, **sums)


@dataclass(frozen=True, slots=True)
class Restated(Round):
    """The result of one rollup: windows; `too_late` counts minutes of series.

    `restamped` windows have another state, and figures as before.
    """

    restamped: int = 0


def run_here(tasks: Sequence[Task]) -> list[pa.Table]:
    """Run the tasks in this process, one after the other."""
    return [task.run() for task in tasks]


def run_on(spark: SparkSession) -> Callable[[Sequence[Task]], list[pa.Table]]:
    """Return a runner that spreads tasks over Spark's executors."""

    def run(tasks: Sequence[Task]) -> list[pa.Table]:
        if not tasks:
            return []
        # An RDD, as each task shall take along its own touched windows and not those of all.
        spread = spark.sparkContext.parallelize(tasks, len(tasks))
        # All results are in the driver's JVM at one time. So a million touched minutes are 10 MB; pickled they can
        # be 1,500 MB, as every slice (group_by makes one of each 32,768 rows) takes the whole column along.
        sent = spread.map(lambda task: packed(task.run(), "zstd"))
        return [unpacked(each) for each in sent.collect()]

    return run


class Rollup:
    """One restatement of the rollups under a table root.

    Args:
        after: called with the name of each step when it is done; tests end the process there.

    Raises:
        TablesBusyError: another rollup is at work.
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
        self._states = States(open_if_there(root, HOUR_REPORTS_TABLE))
        self._points = open_table(root, POINTS_TABLE)
        self._rollups = make_table(root, ROLLUPS_TABLE)
        self._seen_run = self._rollups.transaction_version(STATES_APP) or 0
        with one_at_a_time(root, "rollup"):
            self._superseded = Superseded(root, self._rollups, ROLLUPS_TABLE, ROLLUP_APP, clock)

    def run(self) -> Restated:
        """Restate the windows that are due and commit them; does nothing when nothing came in.

        Raises:
            TablesBusyError: another rollup committed meanwhile. Its work, and each round, stands; run
                again later.
        """
        target = committed_ingest(self._points)
        result = self._round(target)
        while result.ingest < target:
            result = result.then(self._round(target))
        return result

    def _round(self, last: int) -> Restated:
        done = self._rollups.transaction_version(ROLLUP_APP) or 0
        if last <= done and not self._states.days_changed(self._seen_run, done):
            return Restated(done, last)
        windows, target, too_late = self._windows(done, last)
        self._after("summed")
        # A completeness report that was judged with points of later rounds says nothing of rows without them.
        summed = max(target, done)
        days = self._states.days_changed(self._seen_run, summed)
        seen_run = self._states.run_at(self._seen_run, summed)
        at_us = next_stamp_us(self._rollups, self._clock)
        files = RollupFiles(self._rollups, target, at_us)
        day_of = windows.column("window_start").cast(pa.date32())
        for day in sorted(days | set(day_of.unique().to_pylist())):
            states = self._states.of_day(day, self._seen_run, summed)
            self._merge_day(files, day, windows.filter(pc.equal(day_of, day)), states)
        self._after("files")
        with one_at_a_time(self._root, "rollup"):
            self._superseded.prepare(files.superseded, target, at_us)
            self._after("superseded")
            apps = {ROLLUP_APP: target, STATES_APP: seen_run, STAMP_APP: at_us}
            commit_files(self._rollups, ROLLUPS_TABLE, files.actions, apps)
        self._seen_run = seen_run
        self._after("rollups")
        counts = files.created, files.restated, too_late, files.restamped
        return Restated(done, target, *counts)

    def _windows(self, done: int, last: int) -> tuple[pa.Table, int, int]:
        """Return windows of minutes and hours that are due, up to which ingest, and the number too late."""
        if last <= done:
            return WINDOWS.empty_table(), done, 0  # not `last`: an older look must not take it back
        uri = table_uri(self._root, POINTS_TABLE.name)
        files = files_of(self._points)
        touched, target = touched_since(self._points, files, (done, last), self._run_tasks)
        first = first_window(self._points, MINUTES.width_ns)
        kept = touched.filter(pc.field("minute") >= first)
        self._after("touched")
        windows = self._run_tasks(plan_sums(uri, files, kept, target))
        found = pa.concat_tables([WINDOWS.empty_table(), *windows])
        return found, target, touched.num_rows - kept.num_rows

    def _merge_day(self, files: RollupFiles, day: date, rows: pa.Table, states: DayStates) -> None:
        hours = rows.filter(pc.field("width") == "1h")
        files.merge("1m", day, rows.filter(pc.field("width") == "1m"), states)
        files.merge("1h", day, hours, states)
        files.merge("1d", day, self._day(hours, day), states)

    def _day(self, hours: pa.Table, day: date) -> pa.Table:
        """Return the windows of a day for the series that have new `hours` in it.

        Some devices at a time: with each new hour of a series up to 23 others are read.
        """
        known = dataset_of(self._rollups, ROLLUPS_TABLE)
        parts = [WINDOWS.empty_table()]
        for new in by_device(hours, DAY_HOURS):
            devices = new.column("device")
            bounds = pc.min_max(devices).as_py()
            wanted = (
                (pc.field("width") == "1h")
                & (pc.field("date") == day)
                & (pc.field("device") >= bounds["min"])
                & (pc.field("device") <= bounds["max"])
                & pc.field("device").isin(devices.unique())
            )
            others = known.to_table(columns=WINDOWS.names, filter=wanted)
            others = others.join(new.select(SERIES), SERIES, join_type="left semi")
            same = [*SERIES, "window_start"]
            others = others.join(new.select(same), same, join_type="left anti")
            parts.append(sum_days(pa.concat_tables([new, others.select(WINDOWS.names)])))
        return pa.concat_tables(parts)
