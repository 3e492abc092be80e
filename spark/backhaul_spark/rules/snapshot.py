"""The twin of one device, as rows of Arrow. docs/twin-actor.md explains each column."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.rules.plan import Plan
from backhaul_spark.rules.statistics import curves_of, figures
from backhaul_spark.rules.twins import Twins, of_rule
from backhaul_spark.tables.schemas import SNAPSHOTS

# How much of a device's health an open alert takes.
_TAKES = {"info": 0.05, "warning": 0.2, "critical": 0.5}


def snapshot_table(plan: Plan, twins: Twins, rows: NDArray[np.intp], at_ns: int) -> pa.Table:
    """Return these rows of `twins.devices` as a table of schema SNAPSHOTS.

    `rows`: (n,) intp.
    """
    devices = twins.devices
    health = np.ones(len(rows))
    opened: list[list[str]] = [[] for _ in rows]
    for spoken in plan.rules:
        state = devices[of_rule(spoken.rule)]
        if "open" not in (state.dtype.names or ()):
            continue
        here = state["open"][rows]
        health[here] *= 1 - _TAKES[spoken.rule.severity]
        for place in np.flatnonzero(here).tolist():
            opened[place].append(spoken.rule.name)
    known = {str(series): _figures(devices[str(series)][rows]) for series in plan.statistics}
    charge = known[str(plan.statistics[0])]
    said_of = {name: _rows(columns) for name, columns in known.items()}
    base = devices["device"][rows]
    rest = zip(curves_of(devices["curve"][rows]), base["untimely"].tolist(), strict=True)
    statistics = [
        json.dumps(
            {name: said[place] for name, said in said_of.items() if said[place]["last"] is not None}
            | {"battery_curve": curve, "untimely_points": untimely}
        )
        for place, (curve, untimely) in enumerate(rest)
    ]
    names = [twins.names[key] for key in devices.keys[rows].tolist()]
    columns = [
        names,
        base["stored_ns"],
        health.round(3),
        charge["last"],
        charge["slope"],
        [json.dumps(rules) if rules else "[]" for rules in opened],
        statistics,
        np.full(len(rows), at_ns),
    ]
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, SNAPSHOTS, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SNAPSHOTS)


def _figures(rows: NDArray[Any]) -> dict[str, list[float | int | None]]:
    """Return each row's figures as JSON takes them; None for an unknown one."""
    never = rows["time_ns"] == 0
    found = figures(rows) | {"last": rows["last"].astype(float)}
    said: dict[str, list[float | int | None]] = {}
    for name, column in found.items():
        said[name] = column.round(4).tolist()
        for place in np.flatnonzero(never | ~np.isfinite(column)).tolist():
            said[name][place] = None
    return said | {"time_ns": rows["time_ns"].tolist()}


def _rows(columns: dict[str, list[float | int | None]]) -> list[dict[str, float | int | None]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
