"""Rollups as they were known at a time, and the windows restated since. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.columns import STAMP
from backhaul_spark.completeness.hour_reports import hour_reports_known_at
from backhaul_spark.completeness.states import DayStates
from backhaul_spark.errors import NotKeptError, TableMissingError
from backhaul_spark.rollup.files import KEYS
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE, ROLLUPS_TABLE
from backhaul_spark.tables.superseded import rows_known_at

FIGURES = ("count", "min", "max", "mean", "sum", "first", "last", "nans", "texts")
_TOLD = (*FIGURES, "first_text", "last_text", "version", "restated_at")
LENGTHS = {"1m": timedelta(minutes=1), "1h": timedelta(hours=1), "1d": timedelta(days=1)}


def rollups_known_at(root: str, at: datetime, wanted: pc.Expression | None = None) -> pa.Table:
    """Return the rollups as a reader at time `at` would have found them (schema of the table).

    The state of each is that of the completeness reports as they were known then. `at` has its time zone; `wanted` is a
    filter on the rollups' columns.

    Raises:
        TableMissingError: there was no rollup yet.
        NotKeptError: superseded rows are kept since a later time only.
    """
    rows = rows_known_at(root, ROLLUPS_TABLE, ROLLUP_APP, "restated_at", at, wanted)
    parts = [ROLLUPS_TABLE.schema.empty_table()]
    place = rows.schema.get_field_index("state")
    for day in sorted(rows.column("date").unique().to_pylist()):
        states = _states(root, at, day)
        for width in LENGTHS:
            part = rows.filter((pc.field("date") == day) & (pc.field("width") == width))
            parts.append(part.set_column(place, "state", states.of(part, width)))
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in KEYS])


def _states(root: str, at: datetime, day: date) -> DayStates:
    try:
        rows = hour_reports_known_at(root, at, pc.field("date") == day)
    except (TableMissingError, NotKeptError):
        rows = HOUR_REPORTS_TABLE.schema.empty_table()  # nobody knows how they stood: waiting
    return DayStates(rows)


@dataclass(frozen=True, slots=True)
class WindowChange:
    """One window whose figures are others than at a time, or that was not there: `old` is None."""

    device: str
    node: str
    type: str
    key: str
    width: str
    window_start: datetime
    old: dict[str, Any] | None
    new: dict[str, Any]


def restated_since(
    root: str,
    since: datetime,
    *,
    device: str | None = None,
    width: str | None = None,
    unfinished: bool = False,
) -> list[WindowChange]:
    """Return the windows that changed after `since`, with their figures then and now, in order.

    `since` has its time zone. `unfinished` asks for windows too that had not ended then, whose figures were bound to change.

    Raises:
        TableMissingError: there was no rollup yet.
        NotKeptError: superseded rows are kept since a later time only.
    """
    only = pc.field("version") > 0
    for name, value in (("device", device), ("width", width)):
        if value is not None:
            only &= pc.field(name) == value
    table = open_table(root, ROLLUPS_TABLE)
    after = pc.field("restated_at") > pa.scalar(since.astimezone(UTC)).cast(STAMP)
    new = dataset_of(table, ROLLUPS_TABLE).to_table(filter=only & after)
    if not unfinished:
        new = _ended_by(new, since)
    days = pc.field("date").isin(new.column("date").unique())
    old = rows_known_at(root, ROLLUPS_TABLE, ROLLUP_APP, "restated_at", since, only & days)
    before = {
        tuple(row[name] for name in KEYS): row
        for row in old.join(new.select(KEYS), KEYS, join_type="left semi").to_pylist()
    }
    new = new.sort_by([(name, "ascending") for name in KEYS])
    return [_change(before.get(tuple(row[name] for name in KEYS)), row) for row in new.to_pylist()]


def _ended_by(rows: pa.Table, moment: datetime) -> pa.Table:
    parts = [
        rows.filter(
            (pc.field("width") == width)
            & (pc.field("window_start") <= pa.scalar(moment.astimezone(UTC) - length).cast(STAMP))
        )
        for width, length in LENGTHS.items()
    ]
    return pa.concat_tables(parts)


def _change(old: dict[str, Any] | None, new: dict[str, Any]) -> WindowChange:
    before = {name: old[name] for name in _TOLD} if old is not None else None
    keys = {name: new[name] for name in KEYS}
    return WindowChange(**keys, old=before, new={name: new[name] for name in _TOLD})
