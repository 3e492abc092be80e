"""Put newly computed windows, and newly known states, into the files of the rollups table.

Bounds tell which files need not even be opened; of the others those are written anew (tables/rewrite.py) in which
a window is restated or has another state.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.columns import STAMP
from backhaul_spark.completeness.states import DayStates
from backhaul_spark.rollup.rows import SERIES
from backhaul_spark.tables.files import DataFile
from backhaul_spark.tables.rewrite import Rewrite
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

KEYS = ("width", *SERIES, "window_start")


class RollupFiles:
    """The change of one commit to the rollups table, gathered partition by partition.

    Args:
        ingest: up to which points were summed up.
        at_us: the time of the commit, us since 1970.
    """

    def __init__(self, table: DeltaTable, ingest: int, at_us: int) -> None:
        self._ingest, self._at_us = ingest, at_us
        self._rewrite = Rewrite(table, ROLLUPS_TABLE, KEYS, ingest, at_us)
        self.actions = self._rewrite.actions
        self._superseded = [ROLLUPS_TABLE.schema.empty_table()]
        self.created = 0
        self.restated = 0
        self.restamped = 0

    @property
    def superseded(self) -> pa.Table:
        """The rows that restated ones take the place of."""
        return pa.concat_tables(self._superseded)

    def merge(self, width: str, day: date, windows: pa.Table, states: DayStates) -> None:
        """Put windows (all of this width and day) into the table, and states where they changed.

        A row that takes the place of another gets its version plus one. A state that changes alone
        changes in place: the figures are the same, and so is their version.
        """
        rows = _stamped(windows, self._ingest, self._at_us)
        touch = _Touch(rows, states, width)
        known = [ROLLUPS_TABLE.schema.empty_table()]
        for file, held in self._rewrite.files(touch.may_touch, (width, str(day))):
            changed = _changed(held, states.of(held, width))
            if changed or touch.touches(held):
                known.append(held)
                self.restamped += changed
                self._rewrite.keep(file)
        all_rows, superseded = versioned(rows, pa.concat_tables(known))
        if not all_rows.num_rows:
            return
        self._superseded.append(superseded)
        self.restated += superseded.num_rows
        self.created += rows.num_rows - superseded.num_rows
        position = all_rows.schema.get_field_index("state")
        state = states.of(all_rows, width)
        self._rewrite.put((width, str(day)), all_rows.set_column(position, "state", state))


class _Touch:
    """The changing part of a file's contents."""

    def __init__(self, rows: pa.Table, states: DayStates, width: str) -> None:
        self._keys = rows.select(KEYS)
        self._states, self._width = states, width
        self._devices: list[str] = sorted(rows.column("device").unique().to_pylist())
        starts = rows.column("window_start")
        self._first: datetime | None = pc.min(starts).as_py()
        self._last: datetime | None = pc.max(starts).as_py()

    def may_touch(self, file: DataFile) -> bool:
        """Say by its bounds whether a file may hold a window that changes."""
        first, last = file.bounds.get("min.window_start"), file.bounds.get("max.window_start")
        hours = range(24)
        if self._width != "1d" and first is not None and last is not None:
            hours = range(first.hour, last.hour + 1)
        devices = file.bounds.get("min.device"), file.bounds.get("max.device")
        return self._rows_within(file, first, last) or self._states.changed_between(*devices, hours)

    def _rows_within(self, file: DataFile, first: Any, last: Any) -> bool:
        if self._first is None or self._last is None:
            return False
        if first is not None and self._last < first:
            return False
        if last is not None and self._first > last:
            return False
        return file.may_have(self._devices)

    def touches(self, held: pa.Table) -> bool:
        """Say whether a file does hold a window that is restated."""
        if not self._keys.num_rows:
            return False
        return bool(held.select(KEYS).join(self._keys, KEYS, join_type="left semi").num_rows)


def _changed(held: pa.Table, state: pa.Array) -> int:
    """Count rows that have a state, and now another; those of older tables have none."""
    return pc.sum(pc.fill_null(pc.not_equal(held.column("state"), state), False)).as_py() or 0


def versioned(rows: pa.Table, known: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return new rows and the known ones that they do not replace; and those they do.

    A row that replaces another gets its version plus one.
    """
    superseded = known.join(rows.select(KEYS), KEYS, join_type="left semi")
    superseded = superseded.select(known.column_names)
    before = superseded.select([*KEYS, "version"]).rename_columns([*KEYS, "before"])
    joined = rows.join(before, KEYS, join_type="left outer")
    version = pc.add(pc.fill_null(joined.column("before"), 0), 1)
    position = joined.schema.get_field_index("version")
    joined = joined.set_column(position, "version", version).select(rows.column_names)
    kept = known.join(rows.select(KEYS), KEYS, join_type="left anti").select(rows.column_names)
    whole = pa.concat_tables([joined.cast(rows.schema), kept.cast(rows.schema)])
    return whole, superseded.cast(known.schema)


def _stamped(rows: pa.Table, ingest: int, at_us: int) -> pa.Table:
    """Return windows (schema WINDOWS) with the other columns of the table, in version 1."""
    extra = {
        "version": pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows),
        "restated_at": pa.repeat(pa.scalar(at_us).cast(STAMP), rows.num_rows),
        "ingest": pa.repeat(pa.scalar(ingest, pa.int64()), rows.num_rows),
        "date": rows.column("window_start").cast(pa.date32()),
        "state": pa.nulls(rows.num_rows, pa.string()),
    }
    for name, column in extra.items():
        rows = rows.append_column(name, column)
    return rows.select(ROLLUPS_TABLE.schema.names).cast(ROLLUPS_TABLE.schema)
