"""Rows of the tables trips, stops and fences, completed from those of a vehicle's fold. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import h3  # type: ignore[import-untyped]

from backhaul_spark.tables.schemas import FENCES_TABLE, STOPS_TABLE, TRIPS_TABLE, TableSpec

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What makes a row the same as another one: two of them are versions.
KEYS = {
    TRIPS_TABLE.name: ("device", "start_ns"),
    STOPS_TABLE.name: ("device", "start_ns"),
    FENCES_TABLE.name: ("device", "time_ns", "fence", "kind"),
}
WRITTEN = ("version", "restated_at", "ingest")
"""What a row says of its own making, as against what it says."""


def figures_of(spec: TableSpec) -> list[str]:
    """Return the columns that a computation from scratch gives alike."""
    return [name for name in spec.schema.names if name not in WRITTEN]


def complete(table: str, device: str, closed: int | None, said: Row, resolution: int) -> Row:
    """Return the row with all columns that follow from the given ones.

    Args:
        table: its name.
        device: whose row it is.
        closed: the hour in which it became certain, None for never yet.
        said: as the fold said it.
        resolution: of H3 cells.
    """
    row: Row = {"device": device, "closed": closed} | said
    begin_ns = said["time_ns" if table == FENCES_TABLE.name else "start_ns"]
    row["date"] = _time(begin_ns).date()
    if table == FENCES_TABLE.name:
        row["at"] = _time(begin_ns)
        return row | {"cell": h3.latlng_to_cell(said["lat"], said["lon"], resolution)}
    row |= {"started_at": _time(begin_ns), "ended_at": _time(said["end_ns"])}
    lasted_s = (said["end_ns"] - begin_ns) / 1e9
    if table == STOPS_TABLE.name:
        row["cell"] = h3.latlng_to_cell(said["lat"], said["lon"], resolution)
        return row | {"dwell_s": lasted_s}
    for end in ("start", "end"):
        lat, lon = said[f"{end}_lat"], said[f"{end}_lon"]
        row[f"{end}_cell"] = h3.latlng_to_cell(lat, lon, resolution)
    return row | {"duration_s": lasted_s}


def _time(time_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_ns // 1000)
