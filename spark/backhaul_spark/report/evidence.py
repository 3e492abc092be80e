"""Evidence of anomalies: a device's hours beside those of its peers; and the places of devices. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from backhaul_spark.arrays import Flags, Floats
from backhaul_spark.fleet.cohorts import Cohorts
from backhaul_spark.fleet.readings import Cells, Readings, Signal, Windows
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.survey import Surveyor
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

Row = dict[str, Any]
_FALLS = ("drain",)
_OF_FIRMWARE = ("firmware", "rollout")
LAT, LON = "lat", "lon"
"""Types by which a node says where it is, in degrees."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The hours of a day of one device (or of all of one firmware), and of its peers; NaN where there is nothing.

    Attributes:
        what: the measure, in words.
        own: of the device.
        low, middle, high: what one in ten, one in two and nine in ten of the peers are below.
    """

    what: str
    own: Floats
    low: Floats
    middle: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a device was, by hour: degrees, without the hours in which it did not say."""

    device: str
    lat: Floats
    lon: Floats

    @property
    def last(self) -> tuple[float, float]:
        """Latitude and longitude, where it was last."""
        return float(self.lat[-1]), float(self.lon[-1])


class PeerEvidence:
    """The readings of one day, for pictures.

    Args:
        day: UTC.
        now_ns: ns since the Unix epoch.
    """

    def __init__(
        self, root: str, settings: FleetSettings, day: date, devices: Sequence[str], now_ns: int
    ) -> None:
        self._settings, self._devices = settings, list(devices)
        self._windows = Windows("1h", day)
        self._readings = Readings(dataset_of(open_table(root, ROLLUPS_TABLE)))
        self._surveyor = Surveyor(root, settings, now_ns)
        self._number = {device: at for at, device in enumerate(self._devices)}

    def compared(self, anomalies: Sequence[Row]) -> dict[str, Compared]:
        """Return the evidence of each anomaly of a signal, by its id."""
        of: defaultdict[Signal, list[Row]] = defaultdict(list)
        for row in anomalies:
            if row["node"]:
                of[Signal(row["node"], row["type"], row["key"])].append(row)
        if not of:
            return {}
        cohorts = self._surveyor.cohorts(self._windows, self._devices)
        found: dict[str, Compared] = {}
        for signal, cells in self._readings.cells(self._windows, self._devices, sorted(of)):
            for row in of[signal]:
                found |= self._compare(row, signal, cells, cohorts)
        return found

    def _compare(
        self, row: Row, signal: Signal, cells: Cells, cohorts: Cohorts
    ) -> dict[str, Compared]:
        present: Flags = np.any(cells.count > 0, axis=1)
        mine, peers = _sides(row, cohorts, present, self._number)
        if not mine.any() or not peers.any():
            return {}
        what, values = self._measure(row, signal, cells, mine)
        own = _quantiles(values[mine], (50,))[0]
        unit = self._settings.units.get(str(signal), "")
        per = f"{unit} " if unit else ""
        said = f"{signal}, {per}{what}" if what else f"{signal}, {unit}".rstrip(", ")
        return {row["id"]: Compared(said, own, *_quantiles(values[peers], (10, 50, 90)))}

    def _measure(self, row: Row, signal: Signal, cells: Cells, mine: Flags) -> tuple[str, Floats]:
        """Return the measure that the judge has used, a row a device, a column an hour."""
        falls = row["kind"] in _FALLS
        if row["kind"] in _OF_FIRMWARE and str(signal) in self._settings.drains:
            # Its value is of one of the two: of the one that it is nearer to.
            distance = [
                abs(float(np.nanmedian(each[mine])) - row["value"])
                if np.isfinite(each[mine]).any() and row["value"] is not None
                else np.inf
                for each in (cells.level, np.where(cells.fall > 0, cells.fall, np.nan))
            ]
            falls = distance[1] < distance[0]
        if falls:
            return "lost an hour", np.where(cells.fall > 0, cells.fall, np.nan)
        return "", cells.level

    def places(self, signals: Sequence[Signal]) -> list[Whereabouts]:
        """Return where devices were by these signals, of those that say it; of two nodes that do, the first counts."""
        known = {Signal(*each) for each in signals}
        nodes = sorted({each.node for each in known if each.type == LAT})
        for node in nodes:
            lat, lon = Signal(node, LAT), Signal(node, LON)
            if lat in known and lon in known:
                cells = dict(self._readings.cells(self._windows, self._devices, [lat, lon]))
                return list(self._whereabouts(cells[lat].level, cells[lon].level))
        return []

    def _whereabouts(self, lat: Floats, lon: Floats) -> Iterator[Whereabouts]:
        there = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
        for at, device in enumerate(self._devices):
            if there[at].any():
                yield Whereabouts(device, lat[at, there[at]], lon[at, there[at]])


def _sides(
    row: Row, cohorts: Cohorts, present: Flags, number: dict[str, int]
) -> tuple[Flags, Flags]:
    """Return the devices of an anomaly, and their peers, as the judge takes them."""
    models, firmwares = np.array(cohorts.models), np.array(cohorts.firmwares)
    if row["device"]:
        mine = np.zeros(len(present), dtype=bool)
        at = number.get(row["device"])
        if at is None:
            return mine, mine
        mine[at] = True
        level = int(cohorts.level_of(present)[at])
        peers = present & ~mine
        if level in (0, 1):
            peers &= models == models[at]
        if level == 0:
            peers &= firmwares == firmwares[at]
        return mine, peers
    of_model = present & (models == row["model"])
    mine = of_model & (firmwares == row["firmware"])
    return mine, of_model & ~mine


def _quantiles(values: Floats, parts: Sequence[int]) -> list[Floats]:
    """Return percentiles of each hour over all devices, NaN where none says anything."""
    found = np.full((len(parts), values.shape[1]), np.nan)
    said = np.isfinite(values).any(axis=0)
    found[:, said] = np.nanpercentile(values[:, said], parts, axis=0)
    return list(found)
