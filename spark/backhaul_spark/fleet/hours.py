"""How each hour of each device stands on a day, from completeness reports and rollups. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.fleet.readings import HOUR_US, Windows
from backhaul_spark.tables.delta import dataset_of, open_if_there
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE

STATES = ("complete", "explained", "waiting")
# From worst to best; a completeness report says more than a reading.
NOTHING, WAITING, EXPLAINED, UNREPORTED, COMPLETE = range(5)
_CODES = np.array([COMPLETE, EXPLAINED, WAITING], dtype=np.int8)


@dataclass(frozen=True, slots=True)
class HourStates:
    """The completeness reports of some hours: a row each."""

    device: pa.Array
    column: Ints
    state: Ints

    @property
    def devices(self) -> list[str]:
        """Return the devices that have some."""
        found: list[str] = pc.unique(self.device).to_pylist()
        return found

    def counts(self, devices: Sequence[str]) -> Ints:
        """Return how many hours of each device are complete, explained, waiting."""
        counts = np.zeros((len(devices), len(STATES)), dtype=np.int64)
        np.add.at(counts, (self._rows(devices), self.state), 1)
        return counts

    def standing(self, devices: Sequence[str], seen: Flags) -> NDArray[np.int8]:
        """Return the code of every hour: a row a device, a column an hour.

        `seen` is (devices, hours) bool: of which hours there are readings; the result is int8, of the same shape.
        """
        codes = np.where(seen, UNREPORTED, NOTHING).astype(np.int8)
        codes[self._rows(devices), self.column] = _CODES[self.state]
        return codes

    def _rows(self, devices: Sequence[str]) -> Ints:
        index = pa.array(devices, pa.string())
        rows: Ints = pc.index_in(self.device, value_set=index).to_numpy()
        return rows


def states_since(root: str, day: date, devices: Sequence[str]) -> dict[str, int]:
    """Return how many hours of devices are reported from a day on, by state."""
    reports = open_if_there(root, HOUR_REPORTS_TABLE)
    if reports is None:
        return {}
    wanted = (pc.field("date") >= day) & pc.field("device").isin(pa.array(devices, pa.string()))
    rows = dataset_of(reports).to_table(columns=["state"], filter=wanted)
    counts = rows.column("state").value_counts().to_pylist()
    return {each["values"]: each["counts"] for each in counts}


def hour_states(root: str, windows: Windows) -> HourStates:
    """Read the completeness of hours; where there are none, no hour is reported."""
    names = ["device", "hour", "state"]
    reports = open_if_there(root, HOUR_REPORTS_TABLE)
    if reports is None:
        none = np.zeros(0, dtype=np.int64)
        return HourStates(pa.array([], pa.string()), none, none)
    low, high = (
        pa.scalar(us).cast(pa.timestamp("us", tz="UTC"))
        for us in (windows.start_us, windows.end_us)
    )
    hour = pc.field("hour")
    within = (pc.field("date") == windows.first) & (hour >= low) & (hour < high)
    # Of imported ones no vehicle has spoken: readings, no completeness report.
    within &= pc.field("state").isin(STATES)
    rows = dataset_of(reports).to_table(columns=names, filter=within)
    column = (rows.column("hour").cast(pa.int64()).to_numpy() - windows.start_us) // HOUR_US
    state = pc.index_in(rows.column("state"), value_set=pa.array(STATES)).to_numpy()
    return HourStates(rows.column("device").combine_chunks(), column, state)
