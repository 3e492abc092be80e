"""The tables `alerts` and `twins`: each alert once, and the newest word on each device. Driver.

An alert is known by its id, whichever batch brings it: a batch that is done again may say more than
the first time, since timers have run on, and a new checkpoint begins at batch 0. So what the table
has is looked up, among the files of that time. The batch id is committed with the rows all the same:
of two drivers on one table, Delta refuses the one that was thought dead.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from backhaul_runtime.clock import Clock
from backhaul_spark.columns import STAMP
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import (
    dataset_of,
    make_table,
    one_at_a_time,
    open_table,
    transactions,
)
from backhaul_spark.tables.schemas import ALERTS_TABLE, SNAPSHOTS, TWINS_TABLE, TableSpec

APP = "backhaul-twin"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Every so many commits small files become large ones, and files that no reader can still need go.
# All of twins is written anew with each commit, so that its former files are by far the most.
_TIDY_EVERY = {"alerts": 100, "twins": 20}
_KEPT_HOURS = {"alerts": 168, "twins": 1}


class AlertTables:
    """The two tables of one table root, created where they are missing."""

    def __init__(self, root: str, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._alerts = make_table(root, ALERTS_TABLE)
        self._twins = make_table(root, TWINS_TABLE)
        self._commits = dict.fromkeys(_TIDY_EVERY, 0)

    def add_alerts(self, batch_id: int, alerts: pa.Table) -> int:
        """Append those alerts that the table has not got; return how many.

        Raises:
            TablesBusyError: another driver has written since.
        """
        if not alerts.num_rows:
            return 0
        self._alerts.update_incremental()
        known = self._known(alerts)
        new = alerts.filter(pc.invert(pc.is_in(alerts["id"], value_set=known)))
        new = new.take(_first_of_each(new["id"]))
        if new.num_rows:
            written = pa.array([self._clock.now_ns() // 1000] * new.num_rows, STAMP)
            rows = (
                new.append_column("batch", pa.array([batch_id] * new.num_rows, pa.int64()))
                .append_column("written_at", written)
                .append_column("date", _days(new["time_ns"]))
            )
            self._write(self._alerts, rows, "append", batch_id)
            self._tidy(self._alerts, ALERTS_TABLE)
        return int(new.num_rows)

    def put_twins(self, batch_id: int, snapshots: pa.Table) -> int:
        """Put snapshots in the place of older ones; return of how many devices some came.

        Raises:
            TablesBusyError: another driver has written since.
        """
        if not snapshots.num_rows:
            return 0
        self._twins.update_incremental()
        # Not by MERGE: what that writes, pyarrow cannot filter by text (deltalake 1.6).
        known = dataset_of(self._twins).to_table().cast(SNAPSHOTS)
        rows = newest_of_each(pa.concat_tables([known, snapshots]))
        self._write(self._twins, rows, "overwrite", batch_id)
        self._tidy(self._twins, TWINS_TABLE)
        return int(pc.count_distinct(snapshots["device"]).as_py())

    def _known(self, alerts: pa.Table) -> pa.Array:
        """Return the ids that the table has of the time that these alerts are about."""
        span = pc.min_max(alerts["time_ns"]).as_py()
        days = pc.unique(_days(alerts["time_ns"]))
        found = dataset_of(self._alerts).to_table(
            columns=["id"],
            filter=pc.field("date").isin(days)
            & (pc.field("time_ns") >= span["min"])
            & (pc.field("time_ns") <= span["max"]),
        )
        return found["id"].combine_chunks()

    def _write(
        self, table: DeltaTable, rows: pa.Table, mode: Literal["append", "overwrite"], batch_id: int
    ) -> None:
        with one_at_a_time(self._root, "twin", "another twin job has taken over"):
            write_deltalake(table, rows, mode=mode, commit_properties=transactions({APP: batch_id}))

    def _tidy(self, table: DeltaTable, spec: TableSpec) -> None:
        self._commits[spec.name] += 1
        if self._commits[spec.name] % _TIDY_EVERY[spec.name]:
            return
        with suppress(CommitFailedError, TablesBusyError):  # somebody else does, which is as good
            # Ours: of two of delta-rs's at the same time each keeps all rows (ADR 27).
            compact(self._root, spec, self._clock)
            table.vacuum(_KEPT_HOURS[spec.name], dry_run=False, enforce_retention_duration=False)
        table.update_incremental()


def newest_of_each(snapshots: pa.Table) -> pa.Table:
    """Return the newest row of each device, of equal ones the last."""
    order = pc.sort_indices(snapshots, sort_keys=[("at_ns", "ascending")]).to_numpy()[::-1]
    return snapshots.take(order[_first_of_each(snapshots["device"].take(order))])


def _first_of_each(values: pa.ChunkedArray) -> np.ndarray:
    codes = values.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])


def _days(times_ns: pa.ChunkedArray) -> pa.ChunkedArray:
    return times_ns.cast(pa.timestamp("ns")).cast(pa.date32(), safe=False)


def alerts_told(
    root: str, *, since: datetime | None, device: str | None = None, rule: str | None = None
) -> pa.Table:
    """Return alerts about the time from `since` on, the newest last; of one device or rule, or of all.

    Raises:
        TableMissingError: no twin job has ever written there.
    """
    wanted = pc.scalar(True)
    if since is not None:
        moment = since.astimezone(UTC)
        since_ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        wanted = (pc.field("date") >= moment.date()) & (pc.field("time_ns") >= since_ns)
    for name, value in (("device", device), ("rule", rule)):
        if value is not None:
            wanted &= pc.field(name) == value
    return _rows(root, ALERTS_TABLE, wanted).sort_by(
        [("time_ns", "ascending"), ("id", "ascending")]
    )


def twins_told(root: str, device: str | None = None) -> pa.Table:
    """Return the newest snapshot of each device, or of one, by device.

    Raises:
        TableMissingError: no twin job has ever written there.
    """
    wanted = pc.scalar(True) if device is None else pc.field("device") == device
    return _rows(root, TWINS_TABLE, wanted).sort_by("device")


def _rows(root: str, spec: TableSpec, wanted: pc.Expression) -> pa.Table:
    return dataset_of(open_table(root, spec)).to_table(filter=wanted)
