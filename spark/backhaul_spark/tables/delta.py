"""Open, create and commit the Delta tables, through delta-rs (ADR 3, ADR 27).

The points commit is what makes an ingest true; everything else is written before it, under its
number, and counts only from then on. `IngestTables` keeps a second writer, or one that was thought
dead, from mixing its numbers in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from backhaul_spark.errors import (
    TableMissingError,
    TableNewerError,
    TablesApartError,
    TablesBusyError,
)
from backhaul_spark.tables.column_notes import described
from backhaul_spark.tables.files import subtree
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    INGEST_TABLES,
    POINTS_TABLE,
    SCHEMA_VERSION,
    TableSpec,
)

# The application id under which each table remembers the last ingest it took part in.
INGEST_APP = "backhaul-ingest"
# Of points: the number that the last start took, and the last ingest that had happened before it.
START_APP = "backhaul-ingest-start"
BEFORE_START_APP = "backhaul-ingest-before-start"
SCHEMA_KEY = "backhaul.schema"
# Commits that others, who only tidy up, may overtake before we give up.
COMMIT_TRIES = 5


def table_uri(root: str, name: str) -> str:
    """Return where a table lies; `root` is a directory or an object store URI."""
    return f"{root.rstrip('/')}/{name}"


def open_table(root: str, spec: TableSpec) -> DeltaTable:
    """Open an existing table, of this schema version or an older one; see `dataset_of`.

    Raises:
        TableMissingError: it is not there.
        TableNewerError: a newer backhaul made it, or brought it up to date.
    """
    uri = table_uri(root, spec.name)
    try:
        table = DeltaTable(uri)
    except TableNotFoundError as error:
        raise TableMissingError(uri) from error
    _schema_version(table, uri)
    return table


def open_if_there(root: str, spec: TableSpec) -> DeltaTable | None:
    """Return a table as `open_table` does, None where it is not there."""
    try:
        return open_table(root, spec)
    except TableMissingError:
        return None


def make_table(
    root: str, spec: TableSpec, properties: Mapping[str, str] | None = None
) -> DeltaTable:
    """Open a table for writing: created empty (with more `properties`) if it is not there, brought up to date if older.

    Raises:
        TableNewerError: a newer backhaul made it, or brought it up to date.
    """
    uri = table_uri(root, spec.name)
    try:
        table = DeltaTable.create(
            uri,
            schema=described(spec.name, spec.schema),
            mode="ignore",
            partition_by=list(spec.partition_by) or None,
            name=spec.name,
            description=spec.description,
            configuration={SCHEMA_KEY: str(SCHEMA_VERSION), **(properties or {})},
            raise_if_key_not_exists=False,
        )
    except CommitFailedError:  # somebody else made it in this very moment
        table = DeltaTable(uri)
    for _ in range(COMMIT_TRIES):
        if _schema_version(table, uri) == SCHEMA_VERSION:
            return table
        with suppress(CommitFailedError):  # somebody else commits, maybe the same: look again
            _evolve(table, spec)
        table = DeltaTable(uri)
    raise TablesBusyError(
        root, f"{spec.name} could not be brought to schema version {SCHEMA_VERSION}"
    )


def _schema_version(table: DeltaTable, uri: str) -> int:
    found = int(table.metadata().configuration.get(SCHEMA_KEY) or 1)
    if found > SCHEMA_VERSION:
        raise TableNewerError(uri, found, SCHEMA_VERSION)
    return found


def _evolve(table: DeltaTable, spec: TableSpec) -> None:
    """Add the columns that an older table lacks; its rows have null there, its files stay.

    The number comes last: whoever reads it finds the columns, whatever crashed.
    """
    known = {field.name for field in table.schema().fields}
    missing = [Field.from_arrow(field) for field in spec.schema if field.name not in known]
    if missing:
        table.alter.add_columns(missing)
        table.update_incremental()
    table.alter.set_table_properties({SCHEMA_KEY: str(SCHEMA_VERSION)}, raise_if_not_exists=False)


def dataset_of(table: DeltaTable, spec: TableSpec | None = None) -> ds.Dataset:
    """Return a table as a dataset, with all columns of `spec`: null where an older one has none.

    Read by Arrow alone. delta-rs's own way calls Python from Arrow's threads, and one that still has
    something to give back when the program ends aborts it: all was done, and the exit status is 134.
    """
    return table.to_pyarrow_dataset(
        filesystem=subtree(table.table_uri), schema=spec.schema if spec else None
    )


def committed_ingest(points: DeltaTable) -> int:
    """Return the number of the last ingest in a points table as loaded, 0 for none.

    Rows of the other tables with a higher number belong to an ingest that has not happened (yet). So
    do those that carry the number of a start, until an ingest follows: who took it takes them out, but
    may not have come to it.
    """
    number = points.transaction_version(INGEST_APP) or 0
    if number and points.transaction_version(START_APP) == number:
        return points.transaction_version(BEFORE_START_APP) or 0
    return number


def open_coverage(root: str) -> tuple[int, DeltaTable]:
    """Return the last ingest there is, and the coverage table as of then.

    Rows that are merged carry the number of the newest of them: opened after a later ingest, the
    table would seem to have lost what it held before. Where ingests come faster than tables open,
    it is the last one that had something for coverage.

    Raises:
        TableMissingError: nothing was ever ingested.
    """
    points = open_table(root, POINTS_TABLE)
    tries_left = COMMIT_TRIES
    while True:
        before = committed_ingest(points)
        coverage = open_table(root, COVERAGE_TABLE)
        points.update_incremental()
        after = committed_ingest(points)
        if after == before:
            return before, coverage
        tries_left -= 1
        if not tries_left:
            # All that happened up to the number that coverage carries is in it.
            return min(after, coverage.transaction_version(INGEST_APP) or 0), coverage


def transactions(versions: Mapping[str, int]) -> CommitProperties:
    """Return the properties of a commit that moves application ids to these numbers."""
    return CommitProperties(
        app_transactions=[Transaction(app, version) for app, version in versions.items()]
    )


def commit_files(
    table: DeltaTable,
    spec: TableSpec,
    actions: Sequence[AddAction | RemoveAction],
    apps: Mapping[str, int],
) -> None:
    """Put files in and take files out, in one commit that also moves application ids.

    Delta refuses it if one of those ids has moved since `table` was loaded. Whoever takes files out
    must carry an id that all others carry who take out files of that table: delta-rs alone lets two
    compactions both replace the same files, and the rows are there twice.

    Raises:
        CommitFailedError: refused.
    """
    table.create_write_transaction(
        list(actions),
        mode="append",
        schema=table.schema(),
        partition_by=list(spec.partition_by) or None,
        commit_properties=transactions(apps),
    )
    table.update_incremental()


def add_action(file: Mapping[str, Any], now_ns: int, *, data_change: bool = True) -> AddAction:
    """Return the action that adds a file, as PartFile.close describes it."""
    return AddAction(
        path=file["path"],
        size=file["size"],
        partition_values=file["partition"],
        modification_time=now_ns // 1_000_000,
        data_change=data_change,
        stats=json.dumps(file["stats"]),
    )


@contextmanager
def one_at_a_time(root: str, command: str, detail: str = "") -> Iterator[None]:
    """Commit within this. Raises: TablesBusyError: another run of the command committed meanwhile."""
    try:
        yield
    except CommitFailedError as error:
        detail = detail or f"another run of {command} has committed meanwhile"
        raise TablesBusyError(root, detail, command) from error


def _plan_of(app: str) -> str:
    return f"{app}-planned"


def _beside(spec: TableSpec) -> str:
    """Name the id under which points notes the last ingest that a table beside it took part in."""
    return f"{INGEST_APP}-{spec.name}"


class IngestTables:
    """The tables that ingest writes, owned by this process from construction on.

    Construction takes an ingest number for itself: an empty commit to points and coverage. Delta
    refuses a commit whose application id moved since the writer last looked, so a writer that was
    only slow, and not dead as its successor thought, can commit nothing any more.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._tables = {spec.name: make_table(root, spec) for spec in INGEST_TABLES}
        self._require_together()
        happened = committed_ingest(self.points)
        self.committed = (self.points.transaction_version(INGEST_APP) or 0) + 1
        start = {START_APP: self.committed, BEFORE_START_APP: happened}
        for spec in INGEST_TABLES:  # points first: it decides
            self._guarded(spec, partial(self._mark, spec, self.committed, apps=start))
        for spec in INGEST_TABLES[1:]:
            # What predecessors wrote for an ingest that they did not live to commit.
            unheard = f"ingest > {happened}"
            self._guarded(spec, partial(self._tables[spec.name].delete, unheard))

    @property
    def points(self) -> DeltaTable:
        """The points table, as of this process's last commit."""
        return self._tables[POINTS_TABLE.name]

    @property
    def next_ingest(self) -> int:
        """The number of the ingest that the next points commit makes true."""
        return self.committed + 1

    def table(self, spec: TableSpec) -> DeltaTable:
        """Return one of the ingest tables, as of this process's last commit."""
        return self._tables[spec.name]

    def done(self, app: str) -> int:
        """Return the last batch of `app` that the points table holds, -1 for none."""
        # 0 is a batch number, and falsy.
        version = self.points.transaction_version(app)
        return -1 if version is None else version

    def planned(self, app: str) -> int:
        """Return that batch's plan, -1 where an older version committed it."""
        return self.done(_plan_of(app))

    def prepare(self, spec: TableSpec, rows: pa.Table) -> None:
        """Append rows that carry the next ingest number to a table beside points."""
        if rows.num_rows:
            self._write(spec, rows, "append", self.next_ingest)

    def replace(self, spec: TableSpec, rows: pa.Table) -> None:
        """Put `rows` in the place of everything that a table beside points holds."""
        self._write(spec, rows, "overwrite", self.committed)

    def _write(
        self, spec: TableSpec, rows: pa.Table, mode: Literal["append", "overwrite"], ingest: int
    ) -> None:
        properties = transactions({INGEST_APP: ingest})
        self._guarded(
            spec,
            lambda: write_deltalake(
                self._tables[spec.name], rows, mode=mode, commit_properties=properties
            ),
        )

    def commit_points(
        self, files: Sequence[AddAction], app: str, batch: int, planned: int | None = None
    ) -> None:
        """Make the next ingest true, with the files that the executors wrote."""
        number = self.next_ingest
        apps = {app: batch} | ({} if planned is None else {_plan_of(app): planned})
        apps |= {_beside(spec): self._number(spec) for spec in INGEST_TABLES[1:]}
        self._guarded(POINTS_TABLE, lambda: self._mark(POINTS_TABLE, number, files, apps))
        self.committed = number

    def _number(self, spec: TableSpec) -> int:
        return self._tables[spec.name].transaction_version(INGEST_APP) or 0

    def _require_together(self) -> None:
        """See that no table was put back, or made anew, without the others.

        What only a crash left is no more than that: tables beside points are written first, so they may be
        one ingest ahead.

        Raises:
            TablesApartError: one was.
        """
        for spec in INGEST_TABLES[1:]:
            if self._number(spec) > self._number(POINTS_TABLE) + 1:
                self.points.update_incremental()  # another ingest may be at work
            ahead, points = self._number(spec), self._number(POINTS_TABLE)
            if ahead > points + 1:
                raise TablesApartError(self.root, POINTS_TABLE.name, points, ahead)
            known = self.points.transaction_version(_beside(spec)) or 0
            if ahead < known:
                raise TablesApartError(self.root, spec.name, ahead, known)

    def _mark(
        self,
        spec: TableSpec,
        number: int,
        files: Sequence[AddAction] = (),
        apps: dict[str, int] | None = None,
    ) -> None:
        apps = {INGEST_APP: number, **(apps or {})}
        commit_files(self._tables[spec.name], spec, files, apps)

    def _guarded(self, spec: TableSpec, commit: Callable[[], object]) -> None:
        """Commit; where retention has only taken old files out meanwhile, commit again.

        Raises:
            TablesBusyError: another ingest has taken a number.
        """
        table = self._tables[spec.name]
        for tries_left in reversed(range(COMMIT_TRIES)):
            before = table.transaction_version(INGEST_APP)
            if (before or 0) > self.committed:  # seen already, so that Delta would not refuse
                raise TablesBusyError(self.root, "another ingest has taken over")
            try:
                commit()
            except CommitFailedError as error:
                table.update_incremental()
                if table.transaction_version(INGEST_APP) != before or not tries_left:
                    raise TablesBusyError(self.root, "another ingest has taken over") from error
            else:
                return


def by_device(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield `rows` (with a column device) in parts of about `size`; a device's are never parted."""
    rows = rows.sort_by("device").combine_chunks()
    if not rows.num_rows:
        return
    device = rows.column("device")
    begins = np.append(True, pc.not_equal(device[1:], device[:-1]).to_numpy())
    starts = np.flatnonzero(begins)
    number = starts // size
    cuts = [*starts[np.append(True, number[1:] != number[:-1])].tolist(), rows.num_rows]
    for start, end in pairwise(cuts):
        yield rows.slice(start, end - start)
