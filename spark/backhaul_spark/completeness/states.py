"""The state of a window: the worst of the completeness reports of the hours that it lies in, or spans.

`complete` says that all which the vehicle acknowledged in those hours is in points, and in this
row; `explained` that what is not will not come, with a reason; `imported` that an operator brought
the readings, and all of them are in points; `waiting` anything else, an hour
that has not ended included. A completeness report's hour is one of acknowledging: a reading that the
vehicle acknowledged in a later hour than its own stamp says may still restate a complete window.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.tables.delta import dataset_of
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE

# Worst first; a window has the least of its hours.
STATES = ("waiting", "explained", "imported", "complete")
RUN_APP = "backhaul-certificates-run"
_HOUR_US = 3_600_000_000


class DayStates:
    """The states of the windows of one day.

    Args:
        rows: completeness reports of that day, columns device, hour, state and run.
        after_run: completeness reports of later runs than this count as changed.
    """

    def __init__(self, rows: pa.Table, after_run: int = 0) -> None:
        rows = rows.combine_chunks()
        self._devices: NDArray[np.object_] = np.unique(
            np.asarray(rows.column("device").to_pylist(), dtype=object)
        )
        shape = len(self._devices), 24
        self._hours = np.zeros(shape, dtype=np.int8)
        self._changed = np.zeros(shape, dtype=bool)
        device, _ = self._rows_of(rows.column("device"))
        hour = _hour_of_day(rows.column("hour"))
        order = pc.index_in(rows.column("state"), value_set=pa.array(STATES))
        self._hours[device, hour] = pc.fill_null(order, 0).to_numpy()
        run = pc.fill_null(rows.column("run"), 0).to_numpy()
        self._changed[device, hour] = run > after_run

    def of(self, rows: pa.Table, width: str) -> pa.Array:
        """Return the state of each row, by its device and window_start."""
        device, known = self._rows_of(rows.column("device"))
        if not len(self._devices):
            return pa.repeat(pa.scalar(STATES[0]), rows.num_rows)
        if width == "1d":
            found = self._hours.min(axis=1)[device]
        else:
            found = self._hours[device, _hour_of_day(rows.column("window_start"))]
        found = np.where(known, found, 0)
        return pa.array(STATES).take(pa.array(found))

    def changed_between(self, device: str | None, last_device: str | None, hours: range) -> bool:
        """Whether a completeness report changed of devices from `device` to `last_device`, both included.

        None for unknown. `hours`: of the day, 0 to 23.
        """
        low = 0 if device is None else int(np.searchsorted(self._devices, device, "left"))
        high = (
            len(self._devices)
            if last_device is None
            else int(np.searchsorted(self._devices, last_device, "right"))
        )
        return bool(self._changed[low:high, hours.start : hours.stop].any())

    def _rows_of(self, names: pa.ChunkedArray) -> tuple[Ints, Flags]:
        index = pc.index_in(names, value_set=pa.array(self._devices, pa.string()))
        return pc.fill_null(index, 0).to_numpy(), pc.is_valid(index).to_numpy()


def _hour_of_day(stamps: pa.ChunkedArray) -> Ints:
    hours: Ints = stamps.cast(pa.int64()).to_numpy() // _HOUR_US % 24
    return hours


class States:
    """Return the states of windows by a loaded completeness reports table; None where there is no table.

    Load it before the points that a rollup sums up: then the last round takes all completeness reports in.
    A round before it passes over those that were judged with points of later ingests than its own.
    """

    def __init__(self, reports: DeltaTable | None) -> None:
        self._table = reports
        #: the number of the last run that changed a completeness report
        self.run = reports.transaction_version(RUN_APP) or 0 if reports else 0

    def days_changed(self, after_run: int, up_to: int) -> set[date]:
        """Return the days with completeness reports that later runs than `after_run` have judged anew.

        `up_to`: the last ingest that they may have been judged with.
        """
        if self._table is None or after_run >= self.run:
            return set()
        wanted = (pc.field("run") > after_run) & (pc.field("ingest") <= up_to)
        rows = dataset_of(self._table, HOUR_REPORTS_TABLE).to_table(["date"], wanted)
        return set(pc.unique(rows.column("date")).to_pylist())

    def run_at(self, after_run: int, up_to: int) -> int:
        """Return up to which run, at least `after_run`, all were judged with ingests <= `up_to`."""
        if self._table is None or after_run >= self.run:
            return self.run
        wanted = (pc.field("run") > after_run) & (pc.field("ingest") > up_to)
        rows = dataset_of(self._table, HOUR_REPORTS_TABLE).to_table(["run"], wanted)
        return pc.min(rows.column("run")).as_py() - 1 if rows.num_rows else self.run

    def of_day(self, day: date, after_run: int, up_to: int) -> DayStates:
        """Return the states of one day's windows, by the completeness reports that `days_changed` goes by."""
        columns = ["device", "hour", "state", "run"]
        if self._table is None:
            empty: Sequence[pa.Field] = [HOUR_REPORTS_TABLE.schema.field(name) for name in columns]
            return DayStates(pa.schema(empty).empty_table())
        wanted = (pc.field("date") == day) & (pc.field("ingest") <= up_to)
        rows = dataset_of(self._table, HOUR_REPORTS_TABLE).to_table(columns, wanted)
        return DayStates(rows, after_run)
