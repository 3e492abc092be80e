"""Rows that are computed again: an unchanged row keeps its version. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

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
