"""Keep the tables in good order: retention, large files of small ones, no files of the past.

Beside a running ingest and rollup, and after a kill at any moment: each step is a commit of its own
and can be done again. No Spark.

1. days of points that nobody wants any more go, once the rollups, and `places` where it runs, have seen all
   of them
2. former versions of rollups and completeness reports that are too old go
3. points that older agents said twice go (ingest/once.py)
4. small files become large ones
5. files that no version of the last hours refers to are deleted
6. vehicles that were erased are erased once more (jobs/erase.py)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from backhaul_runtime.clock import Clock
from backhaul_spark.decode.points import TIMELESS
from backhaul_spark.errors import TableMissingError, TablesBusyError
from backhaul_spark.ingest.once import remove_doubles
from backhaul_spark.jobs.erase import TableErasure
from backhaul_spark.places.stored import PLACES_APP
from backhaul_spark.rollup.plan import POINTS_FROM
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.tables.compaction import UPKEEP_APP, compact
from backhaul_spark.tables.delta import (
    commit_files,
    open_if_there,
    open_table,
    table_uri,
)
from backhaul_spark.tables.files import DataFile, data_files, file_paths
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    FORKS_TABLE,
    INGEST_TABLES,
    PLACE_STATES_TABLE,
    POINTS_TABLE,
    ROLLUPS_TABLE,
    SUPERSEDED,
    TABLES,
    TableSpec,
)
from backhaul_spark.tables.superseded import KEPT_FROM

# Those to which rows are only appended. The others are written anew by their owners: coverage is
# merged by ingest, rollups and completeness reports take their small files along.
APPENDED = (
    *(spec for spec in INGEST_TABLES if spec is not COVERAGE_TABLE),
    FORKS_TABLE,
    *SUPERSEDED,
)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The retention: days of points and of former versions (None: all), hours of old files.

    `vacuum_hours` must be longer than any batch, rollup or reader takes: their files go after it. `erased`: vehicles of
    which nothing is kept from now on.
    """

    points_days: int | None = None
    superseded_days: int | None = None
    vacuum_hours: int = 168
    erased: tuple[str, ...] = ()


@dataclass(slots=True)
class Maintained:
    """The result of one run.

    Rows by table that retention took out; files before and after by table that were compacted;
    files by table that were deleted. `unseen_points` would have gone, but a rollup or `places` has not seen them;
    `doubled_points` stood twice; `erased_rows` by table were of vehicles that are erased.
    `busy` tables were left to somebody else who was at them.
    """

    removed_rows: dict[str, int] = field(default_factory=dict)
    unseen_points: int = 0
    compacted: dict[str, tuple[int, int]] = field(default_factory=dict)
    deleted_files: dict[str, int] = field(default_factory=dict)
    doubled_points: int = 0
    erased_rows: dict[str, int] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)


class Maintenance:
    """One run over the tables under a root; those that are not there are passed over.

    Args:
        after: called with the name of each step when it is done; tests end the process there.
    """

    def __init__(
        self, root: str, clock: Clock, after: Callable[[str], None] = lambda step: None
    ) -> None:
        self._root = root
        self._clock = clock
        self._after = after
        self._done = Maintained()

    def run(self, keeping: Keeping) -> Maintained:
        """Do all steps.

        Raises:
            TableMissingError: nothing was ever ingested.
        """
        open_table(self._root, POINTS_TABLE)
        if keeping.points_days is not None:
            self._each(POINTS_TABLE, self._keep_points, self._day(keeping.points_days))
        for spec in SUPERSEDED:
            if keeping.superseded_days is not None:
                self._each(spec, self._keep_superseded, self._day(keeping.superseded_days))
        self._after("retention")
        self._each(POINTS_TABLE, self._once)
        self._after("once")
        for spec in APPENDED:
            self._each(spec, self._compact)
        self._after("compacted")
        for spec in TABLES:
            self._each(spec, self._vacuum, keeping.vacuum_hours)
        self._after("vacuumed")
        try:
            # Those that were erased before once more: an older writer may have brought something.
            self._done.erased_rows = TableErasure(self._root, self._clock).run(keeping.erased).rows
        except TablesBusyError:
            self._done.busy.append("erasures")
        return self._done

    def _each(self, spec: TableSpec, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(spec, *arguments)
        except TableMissingError:
            return
        except (TablesBusyError, CommitFailedError):
            self._done.busy.append(spec.name)

    def _day(self, days: int) -> date:
        """Return the first day that is kept."""
        return datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC).date() - timedelta(days)

    def _keep_points(self, spec: TableSpec, first: date) -> None:
        points = open_table(self._root, spec)
        # Told before it is done: a rollup must not sum up a day of which a part is gone.
        if (points.metadata().configuration.get(POINTS_FROM) or "") < str(first):
            _promise(points, POINTS_FROM, str(first))
        self._after("points_from")
        rollups = open_if_there(self._root, ROLLUPS_TABLE)
        seen = (rollups.transaction_version(ROLLUP_APP) if rollups else None) or 0
        if (states := open_if_there(self._root, PLACE_STATES_TABLE)) is not None:
            seen = min(seen, states.transaction_version(PLACES_APP) or 0)
        files = [
            file
            for file in data_files(points, spec)
            if str(TIMELESS) < file.partition["date"] < str(first)
        ]
        gone = [file for file in files if file.bounds["max.ingest"] <= seen]
        self._done.unseen_points = sum(file.rows for file in files) - sum(f.rows for f in gone)
        self._remove(points, spec, gone)

    def _keep_superseded(self, spec: TableSpec, first: date) -> None:
        table = open_table(self._root, spec)
        begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
        kept_from = int(table.metadata().configuration.get(KEPT_FROM) or 0)
        if kept_from < begin.timestamp() * 1e6:
            _promise(table, KEPT_FROM, str(int(begin.timestamp() * 1e6)))
        files = data_files(table, spec)
        gone = [file for file in files if file.partition["superseded_on"] < str(first)]
        self._remove(table, spec, gone)

    def _remove(self, table: DeltaTable, spec: TableSpec, files: list[DataFile]) -> None:
        if not files:
            return
        now_ns = self._clock.now_ns()
        actions = [each.removal(now_ns) for each in files]
        commit_files(table, spec, actions, {UPKEEP_APP: table.version() + 1})
        self._done.removed_rows[spec.name] = sum(file.rows for file in files)

    def _once(self, _: TableSpec) -> None:
        self._done.doubled_points = remove_doubles(self._root, self._clock)

    def _compact(self, spec: TableSpec) -> None:
        before, after = compact(self._root, spec, self._clock)
        if before:
            self._done.compacted[spec.name] = before, after

    def _vacuum(self, spec: TableSpec, hours: int) -> None:
        table = open_table(self._root, spec)
        uri = table_uri(self._root, spec.name)
        before = file_paths(uri)
        # Full: what a killed task wrote was never in any version. (What it returns has files in it
        # that are gone since the last time.)
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        if gone := before - file_paths(uri):
            self._done.deleted_files[spec.name] = len(gone)


def _promise(table: DeltaTable, name: str, value: str) -> None:
    table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
    table.update_incremental()
