"""Simulated vehicles that are well, a reading of each signal a minute: days of driving, charging and rest."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

SERIES = ("battery.temp", "battery.soc", "cpu.load")
_DAY = 1440


def vehicle(seed: int, days: int) -> Floats:
    """Return a vehicle's readings (days * 1440, 3), a minute each, in the order of SERIES.

    Each vehicle has habits of its own: when it leaves, how long it drives, how it charges, how warm it gets; each
    day differs from the last. Every fifth rests at weekends.
    """
    generator = np.random.default_rng([7, seed])
    minutes = days * _DAY
    driving, charging = np.zeros(minutes), np.zeros(minutes)
    leaves, length = generator.uniform(300, 540), generator.uniform(60, 240)
    rests = seed % 5 == 0
    for day in range(days):
        if rests and day % 7 in (5, 6):
            continue
        for start in (leaves, leaves + length + generator.uniform(120, 300)):
            begin = day * _DAY + int(start + generator.normal() * 20)
            driving[begin : begin + int(length * generator.uniform(0.7, 1.3))] = 1
    ambient = 12 + 6 * np.sin(2 * np.pi * (np.arange(minutes) / _DAY - 0.4))
    ambient += np.repeat(np.cumsum(generator.normal(size=days)), _DAY)
    load = np.clip(0.12 + 0.5 * driving + 0.08 * generator.normal(size=minutes), 0, 1)
    temp, soc, values = ambient[0], 80.0, np.empty((minutes, 2))
    for minute in range(minutes):
        if driving[minute]:
            soc -= 0.12
        elif soc < 40 or (charging[minute - 1] and soc < 90):
            charging[minute] = 1
            soc += 0.35
        temp += 0.02 * (ambient[minute] + 14 * driving[minute] + 6 * charging[minute] - temp)
        values[minute] = temp, max(soc, 3.0)
    noise = generator.normal(size=(minutes, 2)) * (0.15, 0.02)
    return np.column_stack([values + noise, load])
