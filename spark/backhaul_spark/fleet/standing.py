"""Read back the rows that the fleet job has written, and give a row that says the same its version again. No Spark."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.tables.delta import dataset_of, open_if_there, open_table
from backhaul_spark.tables.schemas import ANOMALIES_TABLE, UNJUDGED_TABLE

Row = dict[str, Any]
_STAMPS = ("version", "computed_at", "ingest")
# How bad it is beside all others hangs on the others; it is no other anomaly for that.
_UNSAID = (*_STAMPS, "rank", "score")


def versioned(rows: list[Row], known: list[Row], key: tuple[str, ...]) -> tuple[list[Row], int]:
    """Return the rows with their versions, and how many are new or changed.

    A row that says what the known one of its key says keeps `version`, `computed_at` and `ingest`
    of the run that first said so, though rank and score may have moved with the others'.
    """
    before = {tuple(row[name] for name in key): row for row in known}
    result, changed = [], 0
    for row in rows:
        old = before.get(tuple(row[name] for name in key))
        if old is not None and all(row[name] == old[name] for name in row if name not in _UNSAID):
            result.append(row | {name: old[name] for name in _STAMPS})
            continue
        changed += 1
        result.append(row | {"version": 1 if old is None else old["version"] + 1})
    return result, changed


def withdrawn(rows: list[Row], known: list[Row], now: Row) -> list[Row]:
    """Return the known rows that are not said any more, as withdrawn ones (without rank).

    Args:
        rows: with an `id` each.
        known: the same of the last run.
        now: computed_at and ingest for those that are withdrawn now.
    """
    said = {row["id"] for row in rows}
    return [
        row | {"state": "withdrawn", "rank": None} | ({} if row["state"] == "withdrawn" else now)
        for row in known
        if row["id"] not in said
    ]


def as_table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table; every one has every column."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def standing(root: str, day: date, hour: int | None = None) -> list[dict[str, Any]]:
    """Return the anomalies of a day (or an hour of it) that are not withdrawn, worst first.

    Raises:
        TableMissingError: nothing was ever judged.
    """
    return [row for row in all_said(root, day, hour) if row["state"] == "open"]


def all_said(root: str, day: date, hour: int | None = None) -> list[dict[str, Any]]:
    """Return the anomalies of a day (or an hour of it), those that were withdrawn too, by rank.

    Raises:
        TableMissingError: nothing was ever judged.
    """
    rows = dataset_of(open_table(root, ANOMALIES_TABLE)).to_table(filter=_scope(day, hour))
    found: list[dict[str, Any]] = rows.sort_by("rank").to_pylist()
    return found


def unjudged(root: str, day: date, hour: int | None = None) -> list[dict[str, Any]]:
    """Return the signals and clocks that no run judged on a day (or in an hour of it); none where an earlier version ran."""
    table = open_if_there(root, UNJUDGED_TABLE)
    if table is None:
        return []
    rows = dataset_of(table).to_table(filter=_scope(day, hour))
    keys = ("reason", "node", "type", "key", "device")
    found: list[dict[str, Any]] = rows.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return found


def _scope(day: date, hour: int | None) -> Any:
    field = pc.field("hour")
    return (pc.field("date") == day) & (field.is_null() if hour is None else field == hour)
