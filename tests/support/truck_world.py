"""Trucks whose readings come into tables through ingest, rollup and places, without servers and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.places.job import Places
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.rollup.rollup import Rollup, run_here
from tests.support.spark_frames import T0_NS, message_batch, stored, task
from tests.support.trucks import SERIES, Truck, readings, trucks

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_codec import Value

COUNT, DAYS = 8, 2
# One truck reads several times a minute.
STEP_S = {0: 30}
USUAL_STEP_S = 240
FRAME = 2000
NOW_NS = T0_NS + DAYS * 86_400_000_000_000
# A moment at which each question about the last hours has an answer.
EARLIER_NS = T0_NS + 39 * 3_600_000_000_000


class Read(NamedTuple):
    """A reading: vehicle, ns since 1970, series, value."""

    device: str
    at_ns: int
    series: str
    value: float


class TruckWorld:
    """A table root, and what was sent into it: `trucks` and `readings`, in the order of time for each truck."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.trucks = trucks(COUNT)
        self.readings: list[Read] = []
        ingest = Ingest(self.root, SYSTEM_CLOCK)
        parts, first_seq = [], 1
        for number, truck in enumerate(self.trucks):
            for leaf, messages in self._of(number, truck).items():
                sent = stored(messages, device=truck.device, leaf=leaf, first_seq=first_seq)
                parts.append(message_batch("UP_00", sent))
                first_seq += len(messages)
        report = task(self.root, ingest.tables.next_ingest, *parts)
        ingest.commit("trucks", 0, [report])
        Rollup(self.root, SYSTEM_CLOCK, run_here).run()
        settings = PlacesSettings(energy="truck.power")
        Places(self.root, SYSTEM_CLOCK, run_here, settings, ()).run()

    def _of(self, number: int, truck: Truck) -> dict[str, list[bytes]]:
        """Return a truck's messages by what follows its name in their subjects."""
        said: dict[str, Value] = {
            "fleet": truck.fleet,
            "driver": truck.driver,
            "model": truck.model,
            "firmware": truck.firmware,
            "load_capacity": truck.load_capacity,
            "nominal_fuel_use": truck.nominal_fuel_use,
        }
        points = [Point("vehicle", name, T0_NS, value) for name, value in said.items()]
        found = {"f.vehicle": [encode_frame(points, epoch=1, seq=1)]}
        step_s = STEP_S.get(number, USUAL_STEP_S)
        times_s = T0_NS // 1_000_000_000 + np.arange(0, DAYS * 86_400, step_s)
        numbers = np.full(len(times_s), number)
        capacity_kg = np.full(len(times_s), truck.load_capacity)
        columns = readings(numbers, times_s, capacity_kg)
        seq = 1
        for node in ("gps", "truck", "engine"):
            read = [
                Read(truck.device, int(time_s) * 1_000_000_000, name, float(columns[name][at]))
                for at, time_s in enumerate(times_s)
                for name in SERIES
                if name.startswith(f"{node}.")
            ]
            self.readings += read
            frames = found[f"f.{node}"] = []
            for start in range(0, len(read), FRAME):
                rows = [
                    Point(node, each.series.partition(".")[2], each.at_ns, each.value)
                    for each in read[start : start + FRAME]
                ]
                seq += 1
                frames.append(encode_frame(rows, epoch=1, seq=seq))
        return found
