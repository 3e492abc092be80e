"""The kinds of anomalies, and the sentence for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from backhaul_spark.fleet.firmware import Apart, Rollout
    from backhaul_spark.fleet.readings import Signal

Kind = Literal["firmware", "rollout", "clock", "no_data", "stuck", "drain", "drift", "level"]
# Of one device's signal the first of these is told, the others are named beside it.
ORDER: tuple[Kind, ...] = (
    "firmware",
    "rollout",
    "clock",
    "no_data",
    "stuck",
    "drain",
    "drift",
    "level",
)

BY_THE_HOUR: tuple[Kind, ...] = ("drain", "drift", "level")
"""Kinds that compare an hour with the same hour of others: a clock that is wrong looks like them."""
CLOCK_UNKNOWN = "all of this came later, and nothing tells whether its clock was right"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the time asked about is there: hours with readings, and how they are reported."""

    hours: int
    seen: int
    complete: int = 0
    explained: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        notes = [
            f"{number} {what}"
            for number, what in ((self.explained, "explained"), (self.waiting, "waiting"))
            if number
        ]
        of = "the hour" if self.hours == 1 and self.seen else f"{self.seen} of {self.hours} hours"
        return f"readings in {of}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """One anomaly: of a device, or with device "" of all devices of a firmware or cohort.

    Attributes:
        score: how many times over the limit it is; 1 is just an anomaly.
        value, expected: what it is and what the peers have, in the signal's unit; None where the
            kind has none.
        peers: how many were compared with.
        cohort: who they are.
        also: other kinds that the same device and signal show.
    """

    kind: Kind
    device: str
    model: str
    firmware: str
    signal: Signal | None
    score: float
    text: str
    value: float | None = None
    expected: float | None = None
    peers: int = 0
    cohort: str = ""
    coverage: Coverage | None = None
    also: tuple[str, ...] = field(default=())

    def id(self, scope: str) -> str:
        """Return this anomaly's name in `scope` (a day, or a day and hour), the same on every machine."""
        of = self.device or f"{self.model}/{self.firmware}"
        return ":".join([scope, of, self.kind, str(self.signal or "")])


def number(value: float) -> str:
    """Write a number with three digits that count."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "0" if text == "-0" else text


def duration(seconds: float) -> str:
    """Write a span of time with its two largest units."""
    whole = round(abs(seconds))
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        amount, whole = divmod(whole, size)
        if amount:
            parts.append(f"{amount} {name}")
    return " ".join(parts[:2]) or "0 s"


def count(amount: int, one: str, many: str) -> str:
    """Write how many there are of a thing."""
    return f"{amount:,} {one if amount == 1 else many}"


def peers(amount: int, cohort: str) -> str:
    """Name the peers of a comparison."""
    return f"{count(amount, 'peer', 'peers')} ({cohort})"


def ratio_words(value: float, expected: float) -> str:
    """Say how much faster one falls than the others."""
    if expected > 0 and value / expected >= 1.05:
        return f"{number(value / expected)} times faster"
    return f"{number(value - expected)} an hour faster"


def measured_text(kind: str, signal: Signal, value: float, expected: float, who: str) -> str:
    """Say how a device's measure (fleet/measures.py) differs from that of its peers, `who`."""
    more, away = value > expected, number(abs(value - expected))
    if kind == "drain":
        faster = ratio_words(value, expected)
        return f"{signal} falls {faster} than {who}: {number(value)} an hour against {number(expected)}"
    if kind == "level":
        side = "above" if more else "below"
        return f"{signal} lies {away} {side} {who}: {number(value)} against {number(expected)}"
    way = "up" if more else "down"
    if kind == "drift":
        return f"{signal} drifts {way} by {away} an hour, away from {who}"
    return f"{signal} drifts: it has moved {way} by {away} against its own days before, and {who} have not"


def stuck_text(signal: Signal, value: float, hours: int, readings: int, who: str) -> str:
    """Say that a sensor sticks."""
    span = count(hours, "hour", "hours")
    return f"{signal} sticks at {number(value)} for {span} ({count(readings, 'reading', 'readings')}), while {who} vary"


def unlike_past_text(signal: Signal, value: float, usual: float, days: int) -> str:
    """Say that a device's day is unlike its own days before."""
    return (
        f"{signal} is at {number(value)}; in the {count(days, 'day', 'days')} before {number(usual)} was usual"
        " of this device, which has too few peers to be compared with"
    )


def other_firmwares(apart: Apart) -> str:
    """Name which firmwares one was compared with."""
    others = count(apart.firmwares, "other firmware", "other firmwares")
    return f"{others} of model {apart.model or 'unknown'}"


def firmware_text(signal: Signal, apart: Apart, who: str, *, falls: bool) -> str:
    """Say that a firmware's vehicles lie elsewhere, or fall faster, than `who`."""
    sizes = f"{apart.devices:,} vehicles against {apart.others:,}"
    if falls:
        faster = ratio_words(apart.value, apart.expected)
        speeds = f"{number(apart.value)} an hour against {number(apart.expected)}"
        return f"{signal} falls {faster} on firmware {apart.firmware} than on {who}: {speeds} ({sizes})"
    side = "higher" if apart.value > apart.expected else "lower"
    away = number(abs(apart.value - apart.expected))
    return f"{signal} is {away} {side} on firmware {apart.firmware} than on {who} ({sizes})"


def rollout_text(found: Rollout, *, falls: bool) -> str:
    """Describe the change that a new firmware brought to its model's vehicles."""
    what, each = ("falls", " an hour") if falls else ("is", "")
    return (
        f"{found.signal} {what} {number(found.after)}{each} on {found.devices:,} vehicles with "
        f"firmware {found.firmware}; on model {found.model or 'unknown'} it was "
        f"{number(found.before)}{each} in the {count(found.days, 'day', 'days')} before that firmware"
    )


def rhythm_text(offset_s: float, others: int) -> str:
    """Describe a clock whose error shows in the daily rhythm alone."""
    away, beside = duration(offset_s), duration(86_400 - abs(offset_s))
    way, other = ("ahead", "behind") if offset_s > 0 else ("behind", "ahead")
    return (
        f"its clock seems to be about {away} {way} (or {beside} {other}): so moved, its day runs as that of"
        f" {count(others, 'other', 'others')}. All of it was handed over later, so nothing else tells"
    )


def clock_text(offset_s: float, unset: int, points: int) -> str:
    """Describe a clock's error."""
    parts = []
    if offset_s > 0:
        parts.append(
            f"its clock is {duration(offset_s)} ahead: the hub stored readings before they were taken"
        )
    if offset_s < 0:
        parts.append(
            f"its clock is {duration(offset_s)} behind: its newest readings are always that old"
        )
    if unset:
        parts.append(f"{unset:,} of {points:,} readings were stamped by a clock that was not set")
    return "; ".join(parts)
