"""Read back the rows that the fleet job has written. No Spark."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.tables.delta import dataset_of, open_if_there, open_table
from backhaul_spark.tables.schemas import ANOMALIES_TABLE, UNJUDGED_TABLE


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
