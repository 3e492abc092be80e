"""Vehicles whose positions come into tables without servers and without Spark, and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from deltalake import DeltaTable

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.job import Places, PlacesRun
from backhaul_spark.places.row_table import KEYS, figures_of
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.rollup.rollup import run_here
from backhaul_spark.tables.schemas import FENCES_TABLE, STOPS_TABLE, TRIPS_TABLE
from tests.support.spark_frames import T0_NS, message_batch, stored, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from backhaul_codec import Value

ROW_TABLES = (TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE)
# About one metre to the north, and to the east at 48 degrees.
NORTH, EAST = 1 / 111_200, 1 / 74_600
HOME = (48.0, 11.0)
FENCES = (
    Fence(name="depot", dwell_s=60, centre=HOME, radius_m=100),
    Fence(name="road", dwell_s=1e9, centre=(HOME[0] + 1500 * NORTH, HOME[1]), radius_m=500),
)


class At(NamedTuple):
    """A reading of a vehicle: seconds after T0, series (`node.type`), value."""

    s: float
    series: str
    value: Value


def at(s: float, north_m: float, east_m: float = 0.0) -> list[At]:
    """Return a position, metres from HOME."""
    lat, lon = HOME[0] + north_m * NORTH, HOME[1] + east_m * EAST
    return [At(s, "gps.lat", lat), At(s, "gps.lon", lon)]


def stand(s: float, until_s: float, north_m: float, every_s: float = 10) -> list[At]:
    """Return positions of a vehicle that stands; the last one is before `until_s`."""
    count = round((until_s - s) / every_s)
    return [each for n in range(count) for each in at(s + n * every_s, north_m)]


def drive(s: float, until_s: float, north_m: float, to_m: float, every_s: float = 10) -> list[At]:
    """Return positions of a vehicle that drives north; the last one is before `until_s`."""
    count = round((until_s - s) / every_s)
    return [
        each
        for n in range(count)
        for each in at(s + n * every_s, north_m + (to_m - north_m) * n / count)
    ]


class PlacesWorld:
    """A table root; readings go in, trips, stops and fences come out."""

    def __init__(
        self,
        root: Path,
        settings: PlacesSettings | None = None,
        fences: tuple[Fence, ...] = FENCES,
    ) -> None:
        self.root = str(root)
        self.settings, self.fences = settings or PlacesSettings(), fences
        self._ingest = Ingest(self.root, SYSTEM_CLOCK)
        self._seqs: dict[str, int] = {}
        self._batch = 0

    def send(self, readings: Iterable[At], device: str = "VID-001") -> None:
        """Ingest the readings, a frame of each node."""
        nodes: dict[str, list[Point]] = {}
        for s, series, value in readings:
            node, type_ = series.split(".")
            point = Point(node, type_, T0_NS + round(s * 1e9), value)
            nodes.setdefault(node, []).append(point)
        for node, points in nodes.items():
            self._seqs[device] = seq = self._seqs.get(device, 0) + 1
            self._batch += 1
            body = encode_frame(points, epoch=1, seq=seq)
            some = stored([body], device=device, leaf=f"f.{node}", first_seq=self._batch)
            report = task(self.root, self._ingest.tables.next_ingest, message_batch("UP_00", some))
            self._ingest.commit("app", self._batch, [report])

    def run(self, after: Callable[[str], None] = lambda step: None) -> PlacesRun:
        places = Places(self.root, SYSTEM_CLOCK, run_here, self.settings, self.fences, after)
        return places.run()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows, sorted by their keys where it is a table of them."""
        rows: list[dict[str, Any]]
        rows = DeltaTable(f"{self.root}/{table}").to_pyarrow_table().to_pylist()
        keys = KEYS.get(table)
        return rows if keys is None else sorted(rows, key=lambda row: [row[key] for key in keys])

    def said(self) -> dict[str, list[list[str]]]:
        """Return what all rows say, to the last bit, without when and how often it was computed."""
        return {
            spec.name: [
                [repr(row[name]) for name in figures_of(spec)] for row in self.rows(spec.name)
            ]
            for spec in ROW_TABLES
        } | {
            "place_states": sorted(
                [row["device"], str(row["hour"]), row["state"]] for row in self.rows("place_states")
            )
        }

    def from_scratch(self, root: Path) -> PlacesWorld:
        """Return a world that computes the same points anew, under an empty root."""
        root.mkdir()
        (root / "points").symlink_to(f"{self.root}/points")
        anew: PlacesWorld = object.__new__(PlacesWorld)
        anew.root, anew.settings, anew.fences = str(root), self.settings, self.fences
        anew.run()
        return anew
