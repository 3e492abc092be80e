"""The faults of a simulated fleet's vehicles: the truth that a detector is scored by. Pure."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backhaul_hub.errors import ConfigError

_HOUR_NS = 3_600_000_000_000

KINDS: dict[str, str] = {
    "drain": "runs firmware 4.2, whose battery falls 3 times as fast",
    "stuck": "one sensor reads the same for ever",
    "drift": "one sensor reads half a degree an hour more and more",
    "clock": "stamps lie 2 to 20 hours ahead",
    "silent": "says what it is, and no more",
    "hot": "its battery is too warm for two minutes out of ten",
    "leak": "its battery falls 14 %/h while parked",
}
_STUCK = ("battery.temp", "cabin.temp", "motor.current")
_DRIFTING = ("battery.temp", "cabin.temp")
_ITEM = re.compile(r"([a-z]+):(\d{1,7})")


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one vehicle, and since when.

    `series`: what shows it, as node.type; empty: all. `ahead_ns`: of a wrong clock.
    """

    kind: str
    since_ns: int
    series: str = ""
    ahead_ns: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        found: dict[str, Any] = {"fault": self.kind, "since_ns": self.since_ns}
        if self.series:
            found["series"] = self.series
        if self.ahead_ns:
            found["ahead_s"] = self.ahead_ns // 1_000_000_000
        return found


def parse_faults(text: str) -> dict[str, int]:
    """Read how many vehicles have each fault: "drain:50,stuck:5".

    Raises:
        ConfigError: it says something else.
    """
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = _ITEM.fullmatch(item)
        if match is None or match[1] not in KINDS or match[1] in found:
            raise ConfigError(
                f"{item!r} is no fault",
                hint=f"KIND:VEHICLES, each kind once, of: {', '.join(KINDS)}",
            )
        found[match[1]] = int(match[2])
    return found


def plant(
    counts: Mapping[str, int], vehicles: int, seed: int, from_ns: int, to_ns: int
) -> dict[int, Fault]:
    """Return the faulty vehicles by their numbers; no vehicle has two faults.

    Args:
        counts: as `parse_faults` returns them.
        vehicles: how many there are.
        seed: of the run.
        from_ns: when the first reading is stamped. A sensor that fails does so within the half of the
            time to `to_ns`; all else is so from the beginning.
        to_ns: when the last one is.

    Raises:
        ConfigError: there are more faults than vehicles.
    """
    if sum(counts.values()) > vehicles:
        raise ConfigError(f"{sum(counts.values())} faults in a fleet of {vehicles} vehicles")
    dice = random.Random(f"{seed}:faults")  # noqa: S311 - a simulation
    numbers = iter(dice.sample(range(vehicles), sum(counts.values())))
    found: dict[int, Fault] = {}
    for kind in sorted(counts):
        for _ in range(counts[kind]):
            found[next(numbers)] = _fault(kind, dice, from_ns, to_ns)
    return found


def _fault(kind: str, dice: random.Random, from_ns: int, to_ns: int) -> Fault:
    failed_ns = from_ns + int(dice.uniform(0.25, 0.5) * (to_ns - from_ns))
    match kind:
        case "stuck":
            return Fault(kind, failed_ns, dice.choice(_STUCK))
        case "drift":
            return Fault(kind, failed_ns, dice.choice(_DRIFTING))
        case "clock":
            return Fault(kind, from_ns, ahead_ns=dice.randrange(2 * _HOUR_NS, 20 * _HOUR_NS))
        case "drain" | "leak":
            return Fault(kind, from_ns, "battery.soc")
        case "hot":
            return Fault(kind, from_ns, "battery.temp")
    return Fault(kind, from_ns)
