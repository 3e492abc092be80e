"""Read completeness reports back, as they are or as they were known at a time. No Spark."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.assurance.completeness import Ends, HourReport, Missing, Reasoned
from backhaul_spark.completeness.states import RUN_APP
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE
from backhaul_spark.tables.superseded import rows_known_at


def hour_reports_known_at(
    root: str, at: datetime | None, wanted: pc.Expression | None = None
) -> pa.Table:
    """Return the completeness reports as they are, or as a reader at time `at` would have found them.

    Args:
        root: the table root.
        at: with its time zone; None for now.
        wanted: a filter on their columns.

    Raises:
        TableMissingError: no hour was ever judged.
        NotKeptError: superseded ones are kept since a later time only.
    """
    if at is None:
        table = open_table(root, HOUR_REPORTS_TABLE)
        return dataset_of(table, HOUR_REPORTS_TABLE).to_table(filter=wanted)
    return rows_known_at(root, HOUR_REPORTS_TABLE, RUN_APP, "certified_at", at, wanted)


def hour_reports(root: str, device: str | None = None) -> list[tuple[str, HourReport]]:
    """Return (device, completeness report) of all devices or one, by device and hour.

    Raises:
        TableMissingError: no hour was ever judged.
    """
    wanted = pc.field("device") == device if device is not None else None
    rows = hour_reports_known_at(root, None, wanted)
    rows = rows.sort_by([("device", "ascending"), ("hour", "ascending")])
    rows = rows.set_column(1, "hour", rows.column("hour").cast(pa.int64()))
    return [(row["device"], _hour_report(row)) for row in rows.to_pylist()]


def _hour_report(row: dict[str, Any]) -> HourReport:
    explained = json.loads(row["explained_ranges"])
    return HourReport(
        row["hour"] * 1000,
        row["state"],
        tuple(json.loads(row["epochs"])),
        tuple(Missing(*each) for each in json.loads(row["missing_ranges"])),
        tuple(
            Reasoned(lane, epoch, low, high or 0, why) for lane, epoch, low, high, why in explained
        ),
        row["why"],
        tuple(Ends(*each) for each in json.loads(row["chain"] or "[]")),
    )
