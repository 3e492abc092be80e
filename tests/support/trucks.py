"""A fleet of trucks as TSBS's use case "iot" has it, over the vehicles of `backhaul-hub simulate`: what they say and read.

Model and firmware are those of the simulated vehicle. A truck lives in its cycle of six hours: it drives for two
(every seventh for five), stands with the engine on for a quarter of an hour, and then with the engine off.
Everything follows from seed, truck and time. What a truck does changes with whole minutes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backhaul_hub.simulated.vehicle import CYCLE_S, Vehicle

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLEETS = ("East", "West", "North", "South")
DRIVERS = ("Rodney", "Derek", "Trish", "Andy", "Seth", "Albert")
LOAD_CAPACITY_KG = {"VAN-1": 1500.0, "VAN-2": 2000.0, "TRUCK-1": 5000.0}
NOMINAL_FUEL_USE = {"VAN-1": 12.0, "VAN-2": 15.0, "TRUCK-1": 19.0}
SERIES = (
    "gps.lat",
    "gps.lon",
    "gps.speed",
    "gps.heading",
    "gps.grade",
    "truck.load",
    "truck.fuel",
    "truck.fuel_use",
    "truck.status",
    "truck.power",
    "engine.running",
)
_IDLE_S, _BLOCK_S, _BROKEN_S = 900, 3600, 1500


@dataclass(frozen=True, slots=True)
class Truck:
    """What a truck says of itself."""

    device: str
    fleet: str
    driver: str
    model: str
    firmware: str

    @property
    def load_capacity(self) -> float:
        """What it may carry, kg."""
        return LOAD_CAPACITY_KG[self.model]

    @property
    def nominal_fuel_use(self) -> float:
        """What its maker says it uses, l/h."""
        return NOMINAL_FUEL_USE[self.model]


def trucks(count: int, seed: int = 1) -> list[Truck]:
    """Return so many trucks."""
    found = []
    for number in range(count):
        device = f"TRK-{number:05}"
        vehicle = Vehicle(device, seed)
        fleet, driver = FLEETS[number % 4], DRIVERS[number * 7 % len(DRIVERS)]
        found.append(Truck(device, fleet, driver, vehicle.model, vehicle.firmware))
    return found


def readings(
    numbers: NDArray[np.int64], times_s: NDArray[np.int64], capacity_kg: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Return what trucks read of each of SERIES.

    Args:
        numbers: of the trucks, an entry a reading.
        times_s: when, s since 1970, an entry a reading.
        capacity_kg: what these trucks may carry, an entry a reading.
    """
    at_s = (times_s + numbers * 1740) % CYCLE_S
    drive_s = np.where(numbers % 7 == 3, 18_000, 7_200)
    drives, on = at_s < drive_s, at_s < drive_s + _IDLE_S
    cycle = (times_s + numbers * 1740) // CYCLE_S
    noise = _dice(numbers, times_s)
    speed = np.where(drives, 20 + 60 * noise, 0.0).round(1)
    driven_s = np.minimum(at_s, drive_s)
    fuel = np.where(numbers % 5 == 2, 0.3, 0.9) - 0.25 * driven_s / drive_s
    # Of each block of an hour, some begin with a breakdown.
    block, in_block_s = times_s // _BLOCK_S, times_s % _BLOCK_S
    broken = (_dice(numbers, block, salt=7) < 0.08) & (in_block_s < _BROKEN_S)
    metres = 15.0 * driven_s * np.where(cycle % 2 == 0, 1, -1) + np.where(
        cycle % 2 == 0, 0.0, 15.0 * drive_s
    )
    found = {
        "gps.lat": 40 + numbers % 10 + metres / 111_200,
        "gps.lon": 8 + numbers % 7 + np.zeros(len(numbers)),
        "gps.speed": speed,
        "gps.heading": np.where(cycle % 2 == 0, 0.0, 180.0),
        "gps.grade": (10 * noise).round(0),
        "truck.load": (capacity_kg * _dice(numbers, cycle, salt=3)).round(0),
        "truck.fuel": fuel.round(3),
        "truck.fuel_use": np.where(drives, 10 + 12 * noise, 1.5).round(1),
        "truck.status": broken.astype(np.float64),
        "truck.power": np.where(drives, 40_000 + 20_000 * noise, 300.0).round(0),
        "engine.running": on.astype(np.float64),
    }
    assert tuple(found) == SERIES
    return found


def _dice(
    numbers: NDArray[np.int64], times: NDArray[np.int64], salt: int = 0
) -> NDArray[np.float64]:
    """Return noise in 0..1, of 1000 steps."""
    mixed = (numbers.astype(np.uint64) << np.uint64(32)) ^ times.astype(np.uint64)
    mixed = (mixed + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(1000)).astype(np.float64) / 1000
