"""Simulated vehicles: seeded, plausible, and at the resolution of real sensors.

Pure: time comes in, points go out. A reading is rounded as its sensor would round it, which is
also what lets frames be small.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from backhaul_codec import Point

_METRES_A_DEGREE = 111_320.0
_CAPACITY_KWH = 40.0


@dataclass(slots=True)
class Vehicle:
    """An electric delivery van with a cooled box.

    Args:
        device: its id, part of the seed.
        seed: the run's seed.
    """

    device: str
    seed: int
    random: random.Random = field(init=False)
    soc: float = field(init=False)
    box_c: float = 4.0
    pack_c: float = 24.0
    speed_kmh: float = 0.0
    wanted_kmh: float = 50.0
    odometer_km: float = field(init=False)
    lat: float = field(init=False)
    lon: float = field(init=False)
    heading: float = field(init=False)
    door: str = "closed"

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}:{self.device}")  # noqa: S311 - a simulation
        self.soc = self.random.uniform(60, 95)
        self.odometer_km = self.random.uniform(5_000, 90_000)
        self.lat = 49.01 + self.random.uniform(-0.05, 0.05)
        self.lon = 8.40 + self.random.uniform(-0.05, 0.05)
        self.heading = self.random.uniform(0, 360)

    def sample(self, time_ns: int, step_s: float) -> dict[str, list[Point]]:
        """Drive on for `step_s` seconds and read every sensor once: node to its points.

        All points of one pass carry one stamp, `time_ns` since the Unix epoch.
        """
        power_kw = self._drive(step_s)
        current_a = power_kw * 1000 / 360
        voltage_v = 330 + 0.7 * self.soc - 0.02 * current_a
        gps_kmh = max(0.0, self.speed_kmh + self.random.gauss(0, 0.15))
        return {
            "battery": [
                Point("battery", "soc", time_ns, round(self.soc, 2)),
                Point("battery", "voltage", time_ns, round(voltage_v, 1)),
                Point("battery", "current", time_ns, round(current_a, 1)),
                Point("battery", "temp", time_ns, round(self.pack_c, 1)),
            ],
            "drive": [
                Point("drive", "speed", time_ns, round(self.speed_kmh, 1)),
                Point("drive", "power", time_ns, round(power_kw, 2)),
                Point("drive", "odometer", time_ns, round(self.odometer_km, 3)),
            ],
            "gps": [
                Point("gps", "lat", time_ns, round(self.lat, 7)),
                Point("gps", "lon", time_ns, round(self.lon, 7)),
                Point("gps", "speed", time_ns, round(gps_kmh, 1)),
                Point("gps", "satellites", time_ns, self.random.randint(9, 13)),
            ],
            "cargo": [
                Point("cargo", "temp", time_ns, round(self.box_c, 1), key="front"),
                Point("cargo", "temp", time_ns, round(self.box_c + 0.4, 1), key="rear"),
                Point("cargo", "door", time_ns, self.door),
            ],
        }

    def _drive(self, step_s: float) -> float:
        """Move, heat and discharge for `step_s` seconds; return the power drawn in kW."""
        if self.random.random() < step_s / 20:
            self.wanted_kmh = self.random.choice([0, 0, 30, 50, 70, 90])
        slack = self.wanted_kmh - self.speed_kmh
        change = max(-12.0, min(7.0, slack)) * step_s
        self.speed_kmh = max(0.0, self.speed_kmh + change)
        metres = self.speed_kmh / 3.6 * step_s
        self.heading = (self.heading + self.random.gauss(0, 4) * step_s) % 360
        course = math.radians(self.heading)
        self.lat += metres * math.cos(course) / _METRES_A_DEGREE
        self.lon += metres * math.sin(course) / (_METRES_A_DEGREE * math.cos(math.radians(49)))
        self.odometer_km += metres / 1000
        power_kw = (
            0.8
            + 0.00016 * math.pow(self.speed_kmh, 2.2)
            + max(0.0, change / max(step_s, 1e-6)) * 2.4
        )
        self.soc = max(0.0, self.soc - power_kw * step_s / 3600 / _CAPACITY_KWH * 100)
        self.pack_c += (24 + power_kw * 0.5 - self.pack_c) * step_s / 300
        if self.speed_kmh == 0 and self.random.random() < step_s / 15:
            self.door = "open" if self.door == "closed" else "closed"
        elif self.speed_kmh > 5:
            self.door = "closed"
        warmth = 14.0 if self.door == "open" else 3.5
        self.box_c += (warmth - self.box_c) * step_s / 120 + self.random.gauss(0, 0.02)
        return power_kw
