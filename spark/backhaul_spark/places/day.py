"""A day's trips, stops and crossings, as the report shows them. Reads the tables, writes none."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.tables.delta import dataset_of, open_if_there
from backhaul_spark.tables.schemas import FENCES_TABLE, STOPS_TABLE, TRIPS_TABLE, TableSpec

ROWS_MAX = 200
_SAID = ("distance_m", "duration_s", "idle_s", "energy_wh")


def day_of_places(root: str, day: date) -> dict[str, Any] | None:
    """Return a day's sums, the vehicles that went farthest on it, and crossings; None for a day without trip and stop.

    `energy_wh` of vehicles that say none is None; `vehicles` and `crossings` hold ROWS_MAX rows at most.
    """
    trips, stops, fences = (
        _rows(root, spec, day) for spec in (TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE)
    )
    if not trips.num_rows and not stops.num_rows:
        return None
    vehicles: defaultdict[str, dict[str, Any]] = defaultdict(_nothing)
    for row in trips.select(["device", *_SAID]).to_pylist():
        of = vehicles[row["device"]]
        of["trips"] += 1
        for name in _SAID:
            if row[name] is not None:
                of[name] = (of[name] or 0.0) + row[name]
    for row in stops.select(["device", "dwell_s"]).to_pylist():
        of = vehicles[row["device"]]
        of["stops"] += 1
        of["dwell_s"] += row["dwell_s"]
    listed = [{"device": device} | said for device, said in vehicles.items()]
    listed.sort(key=lambda row: (-row["distance_m"], row["device"]))
    names = ["at", "device", "fence", "kind", "inside_s"]
    order = [("time_ns", "ascending"), ("device", "ascending"), ("fence", "ascending")]
    crossings = fences.sort_by(order).select(names).slice(0, ROWS_MAX).to_pylist()
    energy = [row["energy_wh"] for row in listed if row["energy_wh"] is not None]
    return {
        "trips": trips.num_rows,
        "stops": stops.num_rows,
        "devices": len(listed),
        "energy_wh": sum(energy) if energy else None,
        **{
            name: sum(row[name] for row in listed)
            for name in ("distance_m", "duration_s", "idle_s")
        },
        "vehicles": listed[:ROWS_MAX],
        "vehicles_more": max(len(listed) - ROWS_MAX, 0),
        "crossings": crossings,
        "crossings_more": max(fences.num_rows - ROWS_MAX, 0),
    }


def restated_days(root: str) -> pa.Table:
    """Return when rows of each day were last written: columns `date` and `computed_at`."""
    found = []
    for spec in (TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE):
        if (table := open_if_there(root, spec)) is not None:
            rows = dataset_of(table, spec).to_table(columns=["date", "restated_at"])
            found.append(rows.rename_columns(["date", "computed_at"]))
    schema = pa.schema(
        [("date", pa.date32()), ("computed_at", TRIPS_TABLE.schema.field("restated_at").type)]
    )
    return pa.concat_tables([schema.empty_table(), *found])


def _rows(root: str, spec: TableSpec, day: date) -> pa.Table:
    table = open_if_there(root, spec)
    if table is None:
        return spec.schema.empty_table()
    return dataset_of(table, spec).to_table(filter=pc.field("date") == day)


def _nothing() -> dict[str, Any]:
    sums = {"distance_m": 0.0, "duration_s": 0.0, "idle_s": 0.0, "energy_wh": None}
    return {"trips": 0, "stops": 0, "dwell_s": 0.0} | sums
