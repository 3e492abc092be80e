"""Reported hours for tests of the fleet job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import write_deltalake

from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE
from tests.support.fleet_rollups import DAY, SimulatedFleet

if TYPE_CHECKING:
    from pathlib import Path


def report_hours(root: Path, fleet: SimulatedFleet, *, also_silent: bool = True) -> None:
    """All hours of DAY are complete but those of the silent, which wait or are not reported."""
    start = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    rows = [
        dict.fromkeys(HOUR_REPORTS_TABLE.schema.names)
        | {
            "device": name,
            "hour": start + timedelta(hours=hour),
            "state": "waiting" if number in fleet.silent else "complete",
            "date": DAY,
            "ingest": 1,
        }
        for number, name in enumerate(fleet.names)
        for hour in range(24)
        if also_silent or number not in fleet.silent
    ]
    table = make_table(str(root), HOUR_REPORTS_TABLE)
    rows_ = pa.Table.from_pylist(rows, schema=HOUR_REPORTS_TABLE.schema)
    write_deltalake(table, rows_, mode="append")
