"""A simulated vehicle: its sensors' readings at any time. Pure.

A reading follows from the seed, the vehicle and the time alone, so any stretch of any vehicle's life
can be made by itself, live or as a backlog of days, and is the same each time.

A vehicle lives in cycles of six hours: it drives for two, is parked for three, charges for one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backhaul_hub.simulated.faults import Fault

MODELS = ("VAN-1", "VAN-2", "TRUCK-1")
FIRMWARES = ("4.0", "4.1")
DRAINING_FIRMWARE = "4.2"

_HOUR_S, _DAY_S = 3600, 86_400
_DRIVE_S, _PARK_S, _CHARGE_S = 2 * _HOUR_S, 3 * _HOUR_S, 1 * _HOUR_S
CYCLE_S = _DRIVE_S + _PARK_S + _CHARGE_S
_DRIVE_PCT_H, _PARK_PCT_H, _LEAK_PCT_H = 12.0, 0.6, 14.0
_WARM_C, _WARMING_S, _COOLING_S = 12.0, 1200.0, 1800.0
_HOT_EVERY_S, _HOT_S, _HOT_C = 600, 120, 6.0
_DRIFT_S = 7200.0  # for one degree
_MASK = (1 << 64) - 1

# Of each node its series, with the decimals that the sensor has.
SERIES: dict[str, tuple[tuple[str, int], ...]] = {
    "battery": (("soc", 2), ("temp", 1)),
    "cpu": (("load", 2),),
    "motor": (("current", 1),),
    "cabin": (("temp", 1),),
}


@dataclass(slots=True)
class Vehicle:
    """One vehicle.

    Args:
        id: its device id.
        seed: the run's.
        fault: what is wrong with it.
    """

    id: str
    seed: int
    fault: Fault | None = None
    model: str = field(init=False)
    firmware: str = field(init=False)
    temp_max_c: float = field(init=False)
    _noise: int = field(init=False)
    _phase_s: int = field(init=False)
    _full_pct: float = field(init=False)
    _warmth_c: float = field(init=False)
    _drive_pct_h: float = field(init=False)
    _park_pct_h: float = field(init=False)

    def __post_init__(self) -> None:
        dice = random.Random(f"{self.seed}:{self.id}")  # noqa: S311 - a simulation
        kind = self.fault.kind if self.fault else ""
        self.model = dice.choice(MODELS)
        firmware = dice.choice(FIRMWARES)
        self.firmware = DRAINING_FIRMWARE if kind == "drain" else firmware
        self.temp_max_c = dice.choice((45.0, 48.0, 50.0))
        self._noise = dice.getrandbits(64)
        self._phase_s = dice.randrange(CYCLE_S)
        self._full_pct = dice.uniform(92, 98)
        self._warmth_c = dice.gauss(0, 1)
        drain = dice.uniform(0.9, 1.1) * (3 if kind == "drain" else 1)
        self._drive_pct_h = _DRIVE_PCT_H * drain
        self._park_pct_h = _LEAK_PCT_H if kind == "leak" else _PARK_PCT_H * drain

    @property
    def ahead_ns(self) -> int:
        """How far its clock is ahead."""
        return self.fault.ahead_ns if self.fault else 0

    def readings(self, node: str, times_ns: Sequence[int]) -> list[list[int]]:
        """Return the readings of a node's sensors: of each series an integer a time, see SERIES."""
        fault = self.fault
        found = []
        for (type_, decimals), read in zip(SERIES[node], _SENSORS[node], strict=True):
            scale = 10**decimals
            if fault is not None and fault.series == f"{node}.{type_}":
                values = [self._faulty(read, time_ns, fault) for time_ns in times_ns]
            else:
                values = [read(self, time_ns) for time_ns in times_ns]
            found.append([round(value * scale) for value in values])
        return found

    def _faulty(self, read: Callable[[Vehicle, int], float], time_ns: int, fault: Fault) -> float:
        if time_ns < fault.since_ns:
            return read(self, time_ns)
        match fault.kind:
            case "stuck":
                return read(self, fault.since_ns)
            case "drift":
                return read(self, time_ns) + (time_ns - fault.since_ns) / 1e9 / _DRIFT_S
            case "hot" if (time_ns // 1_000_000_000 + self._phase_s) % _HOT_EVERY_S < _HOT_S:
                return self.temp_max_c + _HOT_C + self._dice(time_ns)
        return read(self, time_ns)

    def _cycle_s(self, time_ns: int) -> float:
        return (time_ns / 1e9 + self._phase_s) % CYCLE_S

    def _dice(self, time_ns: int, salt: int = 0) -> float:
        """Return noise in -1..1, bell-shaped enough: the mean of two."""
        mixed = (time_ns // 1_000_000 * 0x9E3779B97F4A7C15 ^ self._noise + salt) & _MASK
        mixed = (mixed ^ mixed >> 31) * 0x94D049BB133111EB & _MASK
        mixed ^= mixed >> 29
        return ((mixed & 0xFFFFFF) + (mixed >> 24 & 0xFFFFFF)) / 0x1000000 - 1.0

    def soc_pct(self, time_ns: int) -> float:
        """Return the battery's charge."""
        at_s = self._cycle_s(time_ns)
        driven_s = min(at_s, _DRIVE_S)
        parked_s = min(max(at_s - _DRIVE_S, 0.0), _PARK_S)
        fallen_pct = (driven_s * self._drive_pct_h + parked_s * self._park_pct_h) / _HOUR_S
        charged_s = at_s - driven_s - parked_s
        return self._full_pct - fallen_pct * (1 - charged_s / _CHARGE_S)

    def battery_c(self, time_ns: int) -> float:
        """Return the battery's temperature."""
        at_s = self._cycle_s(time_ns)
        rise = 1 - math.exp(-min(at_s, _DRIVE_S) / _WARMING_S)
        if at_s > _DRIVE_S:
            rise *= math.exp((_DRIVE_S - at_s) / _COOLING_S)
        day = math.sin(time_ns / 1e9 * math.tau / _DAY_S)
        return 20 + 3 * day + _WARM_C * rise + self._warmth_c + 0.4 * self._dice(time_ns, 1)

    def cpu_load(self, time_ns: int) -> float:
        """Return how busy the gateway is, 0..1: over 0.3 only while driving."""
        driving = self._cycle_s(time_ns) < _DRIVE_S
        return (0.6 if driving else 0.12) + 0.08 * self._dice(time_ns, 2)

    def motor_a(self, time_ns: int) -> float:
        """Return the motor's current."""
        if self._cycle_s(time_ns) >= _DRIVE_S:
            return 0.4 + 0.2 * self._dice(time_ns, 3)
        return 80 + 30 * math.sin(time_ns / 1e9 / 97) + 25 * self._dice(time_ns, 3)

    def cabin_c(self, time_ns: int) -> float:
        """Return the cabin's temperature."""
        day = math.sin(time_ns / 1e9 * math.tau / _DAY_S - 0.5)
        return 21 + 2 * day + 0.5 * self._warmth_c + 0.5 * self._dice(time_ns, 4)


_SENSORS: dict[str, tuple[Callable[[Vehicle, int], float], ...]] = {
    "battery": (Vehicle.soc_pct, Vehicle.battery_c),
    "cpu": (Vehicle.cpu_load,),
    "motor": (Vehicle.motor_a,),
    "cabin": (Vehicle.cabin_c,),
}
