"""The rows that a vehicle's readings give, hour by hour as the job does it, without a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_spark.places.fold import VehicleFold
from backhaul_spark.places.settings import PlacesSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_spark.places.earth import Series

SETTINGS = PlacesSettings()
HOUR_NS = 3_600_000_000_000


def series(rows: Iterable[tuple[float, float]]) -> Series:
    """Return readings of (s, value)."""
    ordered = sorted(rows)
    times = np.array([round(s * 1e9) for s, _ in ordered], np.int64)
    return times, np.array([value for _, value in ordered], float)


def rows_of(
    readings: dict[str, Series], settings: PlacesSettings = SETTINGS
) -> dict[str, list[dict[str, Any]]]:
    """Return what a vehicle's readings give, hour by hour as the job does it."""
    hours = sorted({int(h) for times, _ in readings.values() for h in times // HOUR_NS})
    found: dict[str, list[dict[str, Any]]] = {"trips": [], "stops": [], "fences": []}
    state = None
    for hour in hours:
        vehicle = VehicleFold.of(state)
        inside = {}
        for role, (times, values) in readings.items():
            there = times // HOUR_NS == hour
            inside[role] = times[there], values[there]
        for table, row in vehicle.take(inside, lambda fixes, named: [], settings):  # type: ignore[arg-type]
            found[table].append(row)
        state = vehicle.text()
    for table, row in VehicleFold.of(state).open_rows(settings):
        found[table].append(row)
    return found
