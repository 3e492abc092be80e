"""Put newly computed windows, and newly known states, into the files of the rollups table.

Copy on write, by file: a file is written anew if a window in it is restated or has another state,
and left alone otherwise; statistics tell which ones need not even be opened. Files are sorted by
series and hold at most FILE_ROWS rows, so that a late vehicle touches its own part of a day.
"""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from backhaul_spark.columns import STAMP
from backhaul_spark.rollup.rows import SERIES
from backhaul_spark.tables.compaction import as_schema
from backhaul_spark.tables.delta import add_action, remove_action
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.part_file import PartFile
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

if TYPE_CHECKING:
    from backhaul_spark.completeness.states import DayStates

FILE_ROWS = 1 << 18
# Small files of a partition that may lie there before they become one.
SMALL_FILES_MAX = 8
KEYS = ("width", *SERIES, "window_start")
_FILE_SCHEMA = pa.schema(
    [field for field in ROLLUPS_TABLE.schema if field.name not in ROLLUPS_TABLE.partition_by]
)


class RollupFiles:
    """The change of one commit to the rollups table, gathered partition by partition.

    Args:
        uri: the table.
        table: the same, loaded.
        ingest: up to which points were summed up.
        at_us: the time of the commit, us since 1970.
    """

    def __init__(self, uri: str, table: DeltaTable, ingest: int, at_us: int) -> None:
        self._uri, self._ingest, self._at_us = uri, ingest, at_us
        self._files: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            place = file["partition.width"], str(file["partition.date"])
            self._files.setdefault(place, []).append(file)
        self.actions: list[AddAction | RemoveAction] = []
        self._superseded: list[pa.Table] = []
        self.created = 0
        self.restated = 0
        self.restamped = 0

    @property
    def superseded(self) -> pa.Table:
        """The rows that restated ones take the place of."""
        return pa.concat_tables([ROLLUPS_TABLE.schema.empty_table(), *self._superseded])

    def merge(self, width: str, day: date, windows: pa.Table, states: DayStates) -> None:
        """Put windows (all of this width and day) into the table, and states where they changed.

        A row that takes the place of another gets its version plus one. A state that changes alone
        changes in place: the figures are the same, and so is their version.
        """
        rows = _stamped(windows, self._ingest, self._at_us)
        files = self._files.get((width, str(day)), [])
        touch = _Touch(rows, states, width)
        small = [file for file in files if file["num_records"] < FILE_ROWS // 2]
        merged = {file["path"] for file in small} if len(small) > SMALL_FILES_MAX else set()
        known = [ROLLUPS_TABLE.schema.empty_table()]
        for file in files:
            if file["path"] not in merged and not touch.may_touch(file):
                continue
            held = self._read(file["path"], width, day)
            changed = _changed(held, states.of(held, width))
            if file["path"] in merged or changed or touch.touches(held):
                known.append(held)
                self.restamped += changed
                self._remove(file, width, day)
        all_rows, superseded = versioned(rows, pa.concat_tables(known))
        if not all_rows.num_rows:
            return
        self._superseded.append(superseded)
        self.restated += superseded.num_rows
        self.created += rows.num_rows - superseded.num_rows
        position = all_rows.schema.get_field_index("state")
        state = states.of(all_rows, width)
        self._write(all_rows.set_column(position, "state", state), width, day)

    def _read(self, path: str, width: str, day: date) -> pa.Table:
        with open_input(self._uri, path) as source:
            rows = as_schema(pq.read_table(source), _FILE_SCHEMA)
        for name, value in (("width", width), ("date", day)):
            field = ROLLUPS_TABLE.schema.field(name)
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        return rows.select(ROLLUPS_TABLE.schema.names)

    def _remove(self, file: dict[str, Any], width: str, day: date) -> None:
        partition = {"width": width, "date": str(day)}
        self.actions.append(
            remove_action(file["path"], file["size_bytes"], partition, self._at_us * 1000)
        )

    def _write(self, rows: pa.Table, width: str, day: date) -> None:
        rows = rows.select(_FILE_SCHEMA.names).cast(_FILE_SCHEMA)
        pieces = -(-rows.num_rows // FILE_ROWS)
        for start, end in _even(rows.num_rows, pieces):
            part = PartFile(
                self._uri, {"width": width, "date": str(day)}, self._ingest, _FILE_SCHEMA
            )
            part.write(rows.slice(start, end - start))
            self.actions.append(add_action(part.close(), self._at_us * 1000))


class _Touch:
    """The changing part of a file's contents."""

    def __init__(self, rows: pa.Table, states: DayStates, width: str) -> None:
        self._keys = rows.select(KEYS)
        self._states, self._width = states, width
        self._devices: NDArray[np.object_] = np.unique(
            np.asarray(rows.column("device").to_pylist(), dtype=object)
        )
        starts = rows.column("window_start")
        self._first: datetime | None = pc.min(starts).as_py()
        self._last: datetime | None = pc.max(starts).as_py()

    def may_touch(self, file: dict[str, Any]) -> bool:
        """Say by its statistics whether a file may hold a window that changes."""
        low, high = file.get("min.device"), file.get("max.device")
        first, last = file.get("min.window_start"), file.get("max.window_start")
        hours = range(24)
        if self._width != "1d" and first is not None and last is not None:
            hours = range(first.hour, last.hour + 1)
        return self._rows_within(low, high, first, last) or self._states.changed_between(
            low, high, hours
        )

    def _rows_within(self, low: Any, high: Any, first: Any, last: Any) -> bool:
        if self._first is None or self._last is None:
            return False
        if first is not None and self._last < first:
            return False
        if last is not None and self._first > last:
            return False
        begin = 0 if low is None else np.searchsorted(self._devices, low, "left")
        end = len(self._devices) if high is None else np.searchsorted(self._devices, high, "right")
        return bool(end > begin)

    def touches(self, held: pa.Table) -> bool:
        """Say whether a file does hold a window that is restated."""
        if not self._keys.num_rows:
            return False
        return bool(held.select(KEYS).join(self._keys, KEYS, join_type="left semi").num_rows)


def _changed(held: pa.Table, state: pa.Array) -> int:
    """Count rows that have a state, and now another; those of older tables have none."""
    return pc.sum(pc.fill_null(pc.not_equal(held.column("state"), state), False)).as_py() or 0


def _even(rows: int, pieces: int) -> list[tuple[int, int]]:
    edges = [rows * number // pieces for number in range(pieces + 1)]
    return list(pairwise(edges))


def versioned(rows: pa.Table, known: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return new rows and the known ones that they do not replace, sorted; and those they do.

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
    result = pa.concat_tables([joined.cast(rows.schema), kept.cast(rows.schema)])
    return result.sort_by([(name, "ascending") for name in KEYS]), superseded.cast(known.schema)


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
