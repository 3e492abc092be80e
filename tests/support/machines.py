"""Simulated machines of eight signals, well or with a fault, and how well a detector of several signals does on them.

No signal leaves its usual range by much: what is wrong shows in how the signals go together. Each has noise, and some drift
slowly while the machine is well. A fault begins half way, within a minute or so, and ends before the record does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_spark.detect.joint import JOINT, JointDetector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

ROWS = 1_150
_FAULTS = {
    "pump": ("valve", "leak", "imbalance", "cavitation", "slow", "drift"),
    "thermal": ("cooling", "stuck", "offset", "power"),
    "rotating": ("slip", "imbalance", "bearing"),
}
MACHINES = tuple(_FAULTS)


def faults_of(name: str) -> tuple[str, ...]:
    """Return the faults that a machine may have."""
    return _FAULTS[name]


def machine(
    name: str, fault: str | None, *, seed: int, severity: float = 1.0, rows: int = ROWS
) -> tuple[Floats, Mask]:
    """Return a record: values (rows, 8), and in which rows the fault is.

    Args:
        name: one of MACHINES.
        fault: one of `faults_of(name)`; None for a machine that is well.
        seed: the same gives the same record.
        severity: of the fault, 1 for a plain one.
        rows: one a second.
    """
    generator = np.random.default_rng([seed, MACHINES.index(name), len(fault or "")])
    size = np.zeros(rows)
    if fault is not None:
        begin, end = rows // 2, int(rows * 0.87)
        at, ramp = np.arange(rows), int(generator.integers(1, 60))
        size = severity * np.clip(np.minimum((at - begin) / ramp, (end - at) / ramp), 0, 1)
    values = _MAKERS[name](generator, rows, {fault or "": size})
    return values, size > 0


def _noise(generator: np.random.Generator, rows: int, memory: float, deviation: float) -> Floats:
    """Return a series that forgets, as an autoregression of the first order."""
    steps = generator.normal(size=rows) * deviation * (1 - memory**2) ** 0.5
    found = np.empty(rows)
    value = generator.normal() * deviation
    for at, step in enumerate(steps.tolist()):
        value = memory * value + step
        found[at] = value
    return found


def _wander(generator: np.random.Generator, rows: int, step: float) -> Floats:
    wander: Floats = np.cumsum(generator.normal(size=rows) * step)
    return wander


def _levels(
    generator: np.random.Generator, rows: int, longest: int, choices: Sequence[float]
) -> Floats:
    """Return levels that last for a while each."""
    found = np.empty(rows)
    at = 0
    while at < rows:
        length = int(generator.integers(longest // 4, longest))
        found[at : at + length] = generator.choice(choices)
        at += length
    return found


def _lagged(target: Floats, share: float) -> Floats:
    found = np.empty(len(target))
    value = float(target[0])
    for at, wanted in enumerate(target.tolist()):
        value += share * (wanted - value)
        found[at] = value
    return found


def _pump(generator: np.random.Generator, rows: int, faults: dict[str, Floats]) -> Floats:
    """A pump in a loop: flow, pressure, current, voltage, two accelerations, two temperatures."""
    none = np.zeros(rows)
    size = {name: faults.get(name, none) for name in _FAULTS["pump"]}
    normal = generator.normal
    speed = (1 + _noise(generator, rows, 0.98, 0.01)) * (1 - 0.12 * size["slow"])
    opened = 1 - 0.35 * size["valve"]
    bubbles = size["cavitation"] * normal(size=rows)
    flow = (
        32 * speed * opened - 5 * size["leak"] + _noise(generator, rows, 0.6, 0.35) + 1.5 * bubbles
    )
    pressure = 2.4 * speed**2 * (1 + 0.7 * (1 - opened)) - 0.35 * size["leak"]
    pressure = pressure + _noise(generator, rows, 0.5, 0.06) + 0.2 * bubbles
    current = 2.5 * speed * (0.6 + 0.4 * flow / 32) + 0.25 * size["imbalance"]
    shake = speed**2 * (1 + 0.5 * size["imbalance"])
    casing = 70 + _wander(generator, rows, 0.03) + _noise(generator, rows, 0.5, 0.1)
    drift = 8 * size["drift"] * np.linspace(0, 1, rows)
    columns = (
        np.round(flow),
        np.round(pressure, 2),
        current + _noise(generator, rows, 0.4, 0.05),
        228 + _noise(generator, rows, 0.9, 1.5),
        0.2 * shake * np.exp(0.05 * normal(size=rows)) + 0.03 * np.abs(bubbles),
        0.27 * shake * np.exp(0.06 * normal(size=rows)) + 0.05 * np.abs(bubbles),
        casing + drift,
        28
        + 0.15 * (casing - 70)
        + _wander(generator, rows, 0.01)
        + _noise(generator, rows, 0.3, 0.05),
    )
    return np.stack(columns, axis=1)


def _thermal(generator: np.random.Generator, rows: int, faults: dict[str, Floats]) -> Floats:
    """A cooled drive: load, three temperatures, ambient, fan, power, and a supply that stands still."""
    none = np.zeros(rows)
    size = {name: faults.get(name, none) for name in _FAULTS["thermal"]}
    normal = generator.normal
    load = _levels(generator, rows, 80, [0.2, 0.35, 0.5, 0.7, 0.85, 1.0])
    ambient = 20 + _wander(generator, rows, 0.02)
    heat = 30 * load
    cooled = 1 - 0.45 * size["cooling"]
    inner = _lagged(ambient + 1.2 * heat / cooled, 0.08)
    outer = _lagged(ambient + 0.8 * heat / cooled, 0.05) + 0.2 * normal(size=rows)
    if size["stuck"].any():
        stuck = size["stuck"] > 0
        outer[stuck] = outer[np.argmax(stuck)]
    fan = 0.3 + 0.7 * np.clip((inner - 30) / 30, 0, 1) + 0.01 * normal(size=rows)
    power = (5 * load + 0.4 * fan + 0.05 * normal(size=rows)) * (1 + 0.25 * size["power"])
    columns = (
        100 * load + normal(size=rows),
        inner + 0.2 * normal(size=rows) + 6 * size["offset"],
        outer,
        _lagged(ambient + 0.5 * heat, 0.03) + 0.2 * normal(size=rows),
        ambient + 0.1 * normal(size=rows),
        fan,
        power,
        np.full(rows, 24.0),
    )
    return np.stack(columns, axis=1)


def _rotating(generator: np.random.Generator, rows: int, faults: dict[str, Floats]) -> Floats:
    """A shaft and what it drives: speed, torque, current, driven speed, two vibrations, bearing, acceleration."""
    none = np.zeros(rows)
    size = {name: faults.get(name, none) for name in _FAULTS["rotating"]}
    normal = generator.normal
    speed = _lagged(_levels(generator, rows, 150, [600, 900, 1200, 1500]), 0.15)
    torque = 20 + 0.01 * speed + _noise(generator, rows, 0.9, 1.5)
    shake = (speed / 1000) ** 2 * (1 + 0.6 * size["imbalance"])
    columns = (
        speed + 2 * normal(size=rows),
        torque,
        0.3 * torque + _noise(generator, rows, 0.3, 0.15),
        0.5 * speed * (1 - 0.15 * size["slip"]) + 3 * normal(size=rows),
        shake * np.exp(0.08 * normal(size=rows)),
        0.8 * shake * np.exp(0.08 * normal(size=rows)),
        40
        + 0.01 * speed
        + _wander(generator, rows, 0.02)
        + 8 * size["bearing"]
        + 0.3 * normal(size=rows),
        0.3 + 0.3 * np.abs(normal(size=rows)) * (1 + size["bearing"]),
    )
    return np.stack(columns, axis=1)


_MAKERS: dict[str, Callable[[np.random.Generator, int, dict[str, Floats]], Floats]] = {
    "pump": _pump,
    "thermal": _thermal,
    "rotating": _rotating,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One record after its learning time: where a detector alarmed, and where the fault was."""

    alarms: Mask
    faulty: Mask


@dataclass(frozen=True, slots=True)
class Rates:
    """Of all rows of some records. `f1` is of rows. `false_alarms`: percent of the rows without a fault.

    `missed`: percent of the rows with one. `delay`: median rows from a fault's beginning to the first alarm in it, of
    those that were found; `found`: how many of the faults.
    """

    f1: float
    false_alarms: float
    missed: float
    delay: float
    found: str


def ours(values: Floats) -> Floats:
    """Return the detector's score of each row; 1 is its limit."""
    detector = JointDetector(values.shape[1])
    return np.array([detector.judge(row).score for row in values])


def measured(
    name: str,
    fault: str | None,
    *,
    seed: int,
    severity: float = 1.0,
    way: Callable[[Floats], Floats] = ours,
) -> Measured:
    """Return where a way finds a simulated machine unusual, from a score of 1 on."""
    values, faulty = machine(name, fault, seed=seed, severity=severity)
    return Measured((way(values) >= 1)[JOINT.learning :], faulty[JOINT.learning :])


def rated(records: Sequence[Measured]) -> Rates:
    """Return the rates over some records."""
    alarms = np.concatenate([record.alarms for record in records])
    faulty = np.concatenate([record.faulty for record in records])
    right, wrong, missed = (
        (alarms & faulty).sum(),
        (alarms & ~faulty).sum(),
        (~alarms & faulty).sum(),
    )
    ill = [record for record in records if record.faulty.any()]
    hits = [np.flatnonzero(record.alarms & record.faulty) for record in ill]
    delays = [at[0] - np.argmax(one.faulty) for at, one in zip(hits, ill, strict=True) if len(at)]
    return Rates(
        f1=float(2 * right / max(2 * right + wrong + missed, 1)),
        false_alarms=float(100 * wrong / max((~faulty).sum(), 1)),
        missed=float(100 * missed / max(faulty.sum(), 1)),
        delay=float(np.median(delays)) if delays else float("nan"),
        found=f"{len(delays)} of {len(ill)}",
    )
