"""Simulated vehicles: seeded, plausible, and at the resolution of real sensors.

Pure: time comes in, points go out. A reading is rounded as its sensor would round it, which is
also what lets frames be small.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Literal

from backhaul_codec import Point

from .town import Way

Fault = Literal["hot-fridge", "weak-battery", "stuck-sensor"]
_CAPACITY_KWH = 40.0
_WEAK_PART = 0.04
"""Of its capacity a weak battery has so much left."""
_STUCK_AFTER_S = 30.0
_CHARGE_BELOW, _CHARGE_KW = 8.0, 60.0


@dataclass(slots=True)
class Vehicle:
    """An electric delivery van with a cooled box, on the streets of a made-up town.

    Args:
        device: its id, part of the seed.
        seed: the run's seed.
        fault: the fault that the vehicle has, None for a sound one.
    """

    device: str
    seed: int
    fault: Fault | None = None
    random: random.Random = field(init=False)
    soc: float = field(init=False)
    box_c: float = 4.0
    pack_c: float = 24.0
    speed_kmh: float = 0.0
    wanted_kmh: float = 50.0
    odometer_km: float = field(init=False)
    way: Way = field(init=False)
    door: str = "closed"
    driven_s: float = 0.0
    charging: bool = False
    _stuck_at: float | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}:{self.device}")  # noqa: S311 - a simulation
        self.soc = self.random.uniform(60, 95)
        self.odometer_km = self.random.uniform(5_000, 90_000)
        self.way = Way(self.random)
        if self.fault == "weak-battery":
            self.soc = 20.0

    def sample(self, time_ns: int, step_s: float) -> dict[str, list[Point]]:
        """Drive on for `step_s` seconds and read every sensor once: node to its points.

        All points of one pass carry one stamp, `time_ns` since the Unix epoch.
        """
        power_kw = self._drive(step_s)
        current_a = power_kw * 1000 / 360
        weakness_v = 25.0 if self.fault == "weak-battery" else 0.0
        voltage_v = 330 + 0.7 * self.soc - 0.02 * current_a - weakness_v
        gps_kmh = max(0.0, self.speed_kmh + self.random.gauss(0, 0.15))
        lat, lon = self.way.place()
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
                Point("gps", "lat", time_ns, round(lat, 7)),
                Point("gps", "lon", time_ns, round(lon, 7)),
                Point("gps", "speed", time_ns, round(gps_kmh, 1)),
                Point("gps", "satellites", time_ns, self.random.randint(9, 13)),
            ],
            "cargo": [
                Point("cargo", "temp", time_ns, self._front_c(), key="front"),
                Point("cargo", "temp", time_ns, round(self.box_c + 0.4, 1), key="rear"),
                Point("cargo", "door", time_ns, self.door),
            ],
        }

    def _front_c(self) -> float:
        """Return what the front sensor reads."""
        if self.fault == "stuck-sensor" and self.driven_s > _STUCK_AFTER_S:
            self._stuck_at = self._stuck_at or round(self.box_c, 1)
            return self._stuck_at
        return round(self.box_c, 1)

    def _drive(self, step_s: float) -> float:
        """Move, heat and discharge for `step_s` seconds; return the power drawn in kW."""
        self.driven_s += step_s
        if self.random.random() < step_s / 20:
            # At a customer's door, or in a hurry.
            self.wanted_kmh = self.random.choice([0.0, 0.0, 90.0, 90.0, 90.0])
        wanted_kmh = 0.0 if self.charging else min(self.wanted_kmh, self.way.street.limit_kmh)
        change = max(-12.0, min(7.0, wanted_kmh - self.speed_kmh)) * min(step_s, 1.0)
        self.speed_kmh = max(0.0, self.speed_kmh + change)
        metres = self.speed_kmh / 3.6 * step_s
        self.way.drive(metres)
        self.odometer_km += metres / 1000
        power_kw = (
            0.8
            + 0.00016 * math.pow(self.speed_kmh, 2.2)
            + max(0.0, change / max(step_s, 1e-6)) * 2.4
        )
        if self.charging and self.speed_kmh == 0:
            power_kw -= _CHARGE_KW
        part = _WEAK_PART if self.fault == "weak-battery" else 1.0
        used = power_kw * step_s / 3600 / (_CAPACITY_KWH * part) * 100
        self.soc = min(100.0, max(0.0, self.soc - used))
        self.charging = self.soc < _CHARGE_BELOW or (self.charging and self.soc < 60)
        self.pack_c += (24 + abs(power_kw) * 0.5 - self.pack_c) * step_s / 300
        if self.speed_kmh == 0 and self.random.random() < step_s / 15:
            self.door = "open" if self.door == "closed" else "closed"
        elif self.speed_kmh > 5:
            self.door = "closed"
        warmth = 14.0 if self.door == "open" else 3.5
        if self.fault == "hot-fridge":
            warmth = 17.0
        self.box_c += (warmth - self.box_c) * step_s / 120 + self.random.gauss(0, 0.02)
        return power_kw
