"""Keep the rows that newer versions take the place of, in a table of their own (ADR 27).

They are appended under a number before the commit that puts the newer rows in, and count once the
main table has that number: a crash between the two leaves rows that nobody takes for true, and the
next run takes them out.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake

from backhaul_runtime.clock import Clock
from backhaul_spark.columns import STAMP
from backhaul_spark.errors import NotKeptError, TableMissingError
from backhaul_spark.tables.delta import (
    commit_files,
    dataset_of,
    make_table,
    open_table,
    transactions,
)
from backhaul_spark.tables.schemas import TableSpec, superseded_of

# Property: superseded rows are all there from this time on, us since 1970.
KEPT_FROM = "backhaul.kept_from"
# Application id of the main table: since when the rows of its last commit are there, us since 1970.
STAMP_APP = "backhaul-stamp"


def next_stamp_us(main: DeltaTable, clock: Clock) -> int:
    """Return the time in us, but later than the table's last commit, also where the clock went back."""
    return max(clock.now_ns() // 1000, (main.transaction_version(STAMP_APP) or 0) + 1)


class Superseded:
    """The rows that a writer puts into one table of superseded rows.

    Args:
        main: the table whose rows they were, as its writer loaded it, before this.
        app: the application id that the main table moves to a commit's number.
        clock: for since when superseded rows are kept.

    Raises:
        CommitFailedError: another writer of the main table is at work.
    """

    def __init__(
        self, root: str, main: DeltaTable, spec: TableSpec, app: str, clock: Clock
    ) -> None:
        self._spec, self._app = superseded_of(spec), app
        # Of rows that were there before this table was, nobody kept the former versions.
        kept_from = clock.now_ns() // 1000 if main.version() else 0
        self._table = make_table(root, self._spec, {KEPT_FROM: str(kept_from)})
        done = main.transaction_version(app) or 0
        unheard = pc.field("superseded_by") > done
        if dataset_of(self._table, self._spec).count_rows(filter=unheard):
            # Whoever prepared them can commit nothing any more after this.
            commit_files(main, spec, [], {app: done})
            self._table.delete(f"superseded_by > {done}")
            self._table.update_incremental()

    def prepare(self, rows: pa.Table, number: int, at_us: int) -> None:
        """Append rows that the main table's commit takes out which moves the application id to `number`.

        `at_us`: since when they are superseded, us since 1970.

        Raises:
            CommitFailedError: another writer of the main table is at work.
        """
        if not rows.num_rows:
            # Or what another one prepares under the same number would count with this commit.
            commit_files(self._table, self._spec, [], {self._app: number})
            return
        at = pa.scalar(at_us).cast(STAMP)
        extra = {
            "superseded_at": at,
            "superseded_by": number,
            "superseded_on": at.cast(pa.date32()),
        }
        for name, value in extra.items():
            field = self._spec.schema.field(name)
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        write_deltalake(
            self._table,
            rows.select(self._spec.schema.names).cast(self._spec.schema),
            mode="append",
            commit_properties=transactions({self._app: number}),
        )


def rows_known_at(
    root: str,
    spec: TableSpec,
    app: str,
    since: str,
    at: datetime,
    wanted: pc.Expression | None = None,
) -> pa.Table:
    """Return the rows of a table as a reader at time `at` (with its time zone) would have found them.

    `app` is the application id that the table moves with each commit, `since` the column that says from when on a row
    was there, `wanted` a filter on the table's columns.

    Raises:
        TableMissingError: the table is not there.
        NotKeptError: superseded rows are kept since a later time only.
    """
    old_spec = superseded_of(spec)
    at_us = pa.scalar(at.astimezone(UTC)).cast(STAMP)
    there = pc.field(since) <= at_us
    wanted = there if wanted is None else there & wanted
    # The main table first: what it has not committed, the other one may show already.
    main = open_table(root, spec)
    done = main.transaction_version(app) or 0
    now = dataset_of(main, spec).to_table(filter=wanted)
    try:
        old = open_table(root, old_spec)
    except TableMissingError:
        raise NotKeptError(spec.name, at.isoformat(), "the next run") from None
    kept_from = int(old.metadata().configuration.get(KEPT_FROM) or 0)
    if at.timestamp() * 1e6 < kept_from:
        begin = datetime.fromtimestamp(kept_from / 1e6, UTC)
        raise NotKeptError(spec.name, at.isoformat(), begin.isoformat(timespec="seconds"))
    valid = (pc.field("superseded_at") > at_us) & (pc.field("superseded_by") <= done)
    from_day = pc.field("superseded_on") >= at.astimezone(UTC).date()
    rows = dataset_of(old, old_spec).to_table(
        columns=spec.schema.names, filter=wanted & valid & from_day
    )
    return pa.concat_tables([now, rows])
