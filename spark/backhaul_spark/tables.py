"""Open, create and commit the Delta tables, through delta-rs (ADR 0003).

The points commit is what makes an ingest true; everything else is written before it, under its
number, and counts only from then on. `Fence` keeps a second writer, or one that was thought dead,
from mixing its numbers in.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from backhaul_spark.errors import TableMissing, TablesBusy
from backhaul_spark.schemas import INGEST_TABLES, POINTS_TABLE, SCHEMA_VERSION, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa  # type: ignore[import-untyped]
    from deltalake.transaction import AddAction

# The application id under which each table remembers the last ingest it took part in.
INGEST_APP = "backhaul-ingest"
FILE_BYTES = 128 << 20


def table_uri(root: str, name: str) -> str:
    """Return where a table lies; `root` is a directory or an object store URI."""
    return f"{root.rstrip('/')}/{name}"


def open_table(root: str, spec: TableSpec) -> DeltaTable:
    """Open an existing table. Raises: TableMissing."""
    uri = table_uri(root, spec.name)
    try:
        return DeltaTable(uri)
    except TableNotFoundError as error:
        raise TableMissing(uri) from error


def make_table(root: str, spec: TableSpec) -> DeltaTable:
    """Open a table, creating it empty if it is not there yet."""
    return DeltaTable.create(
        table_uri(root, spec.name),
        schema=spec.schema,
        mode="ignore",
        partition_by=list(spec.partition_by) or None,
        name=spec.name,
        description=spec.description,
        configuration={"backhaul.schema": str(SCHEMA_VERSION)},
        raise_if_key_not_exists=False,
    )


def committed_ingest(points: DeltaTable) -> int:
    """Return the number of the last ingest in a points table as loaded, 0 for none.

    Rows of the other tables with a higher number belong to an ingest that has not happened (yet).
    """
    return points.transaction_version(INGEST_APP) or 0


class IngestTables:
    """The tables that ingest writes, owned by this process from construction on.

    Construction takes an ingest number for itself: an empty commit to points and coverage. Delta
    refuses a commit whose application id moved since the writer last looked, so a writer that was
    only slow, and not dead as its successor thought, can commit nothing any more.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._tables = {spec.name: make_table(root, spec) for spec in INGEST_TABLES}
        self.committed = committed_ingest(self.points) + 1
        for spec in INGEST_TABLES:  # points first: it decides
            self._guarded(partial(self._mark, spec, self.committed))
        for spec in INGEST_TABLES[1:]:
            # What the predecessor wrote for an ingest that it did not live to commit.
            self._tables[spec.name].delete(f"ingest >= {self.committed}")

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

    def prepare(self, spec: TableSpec, rows: pa.Table) -> None:
        """Append rows that carry the next ingest number to a table beside points."""
        if rows.num_rows:
            self._guarded(
                lambda: write_deltalake(
                    self._tables[spec.name],
                    rows,
                    mode="append",
                    commit_properties=_transactions({INGEST_APP: self.next_ingest}),
                )
            )

    def replace(self, spec: TableSpec, rows: pa.Table) -> None:
        """Put `rows` in the place of everything that a table beside points holds."""
        self._guarded(
            lambda: write_deltalake(
                self._tables[spec.name],
                rows,
                mode="overwrite",
                commit_properties=_transactions({INGEST_APP: self.committed}),
            )
        )

    def commit_points(self, files: Sequence[AddAction], app: str, batch: int) -> None:
        """Make the next ingest true, with the files that the executors wrote."""
        number = self.next_ingest
        self._guarded(lambda: self._mark(POINTS_TABLE, number, files, {app: batch}))
        self.committed = number

    def compact_points(self) -> None:
        """Rewrite small files of points as files of about 128 MB; the rows stay what they are.

        A batch every five seconds leaves 35,000 small files a day, each of which a reader opens.
        """
        # Someone else compacting at the same time is as good.
        with suppress(CommitFailedError):
            self.points.optimize.compact(target_size=FILE_BYTES)
        self.points.update_incremental()

    def _mark(
        self,
        spec: TableSpec,
        number: int,
        files: Sequence[AddAction] = (),
        apps: dict[str, int] | None = None,
    ) -> None:
        table = self._tables[spec.name]
        table.create_write_transaction(
            list(files),
            mode="append",
            schema=table.schema(),
            partition_by=list(spec.partition_by) or None,
            commit_properties=_transactions({INGEST_APP: number, **(apps or {})}),
        )
        table.update_incremental()

    def _guarded(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except CommitFailedError as error:
            raise TablesBusy(self.root, "another ingest has taken over") from error


def _transactions(versions: dict[str, int]) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(app, version) for app, version in versions.items()]
    )
