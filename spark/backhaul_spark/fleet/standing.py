"""Read back the rows that the fleet job has written. No Spark."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import ANOMALIES_TABLE


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
    field = pc.field("hour")
    of_scope = field.is_null() if hour is None else field == hour
    where = (pc.field("date") == day) & of_scope
    rows = dataset_of(open_table(root, ANOMALIES_TABLE)).to_table(filter=where)
    found: list[dict[str, Any]] = rows.sort_by("rank").to_pylist()
    return found
