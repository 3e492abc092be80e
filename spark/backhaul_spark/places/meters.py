"""Energy used, and seconds that the engine ran, between one fix and the next. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np

from backhaul_spark.arrays import Floats, Ints
from backhaul_spark.places.earth import Series
from backhaul_spark.places.settings import PlacesSettings

Shares: TypeAlias = tuple[list[float], list[int]]
"""Of each fix the amount, and of how many readings it is."""


class UseMeter(msgspec.Struct, array_like=True):
    """The last reading (time in ns, value), and the amount since the last fix.

    `amount`: Wh or seconds; `readings`: how many it is of.
    """

    last: tuple[int, float] | None = None
    amount: float = 0.0
    readings: int = 0

    def energy(self, series: Series, at_ns: Ints, settings: PlacesSettings) -> Shares:
        """Return the energy used up to each fix since the one before it, in Wh.

        Args:
            series: times (n,), int64 in ns, and values (n,), float64, later than those before them.
            at_ns: times of fixes (m,), int64, ascending.
            settings: what kind of energy it is.
        """
        before, after, hours = self._steps(series, settings.gap_ns, 3.6e12)
        scale = settings.energy_scale
        if settings.energy_kind == "power":
            steps = (before + after) / 2 * hours * scale
        elif settings.energy_kind == "counter":
            steps = np.maximum(after - before, 0.0) * scale  # it falls where it was set back
        else:
            steps = (before - after) * scale
        return self._shares(series, steps, at_ns)

    def running(self, series: Series, at_ns: Ints, settings: PlacesSettings) -> Shares:
        """Return how long the engine ran up to each fix (m,), int64 in ns, since the one before it, in seconds; as `energy`."""
        before, _, seconds = self._steps(series, settings.gap_ns, 1e9)
        return self._shares(series, np.where(before > 0, seconds, 0.0), at_ns)

    def _steps(self, series: Series, gap_ns: int, unit_ns: float) -> tuple[Floats, Floats, Floats]:
        """Return for each reading the value before it, its own, and the time between: 0 across a gap."""
        times, values = series
        if not len(times):
            return values, values, values
        first = self.last or (int(times[0]), float(values[0]))
        before_ns = np.concatenate([[first[0]], times[:-1]])
        before = np.concatenate([[first[1]], values[:-1]])
        self.last = int(times[-1]), float(values[-1])
        step_ns = times - before_ns
        return before, values, np.where(step_ns <= gap_ns, step_ns, 0) / unit_ns

    def _shares(self, series: Series, steps: Floats, at_ns: Ints) -> Shares:
        size = len(at_ns)
        # What comes after the last fix is for the next one.
        fix = np.searchsorted(at_ns, series[0], "left")
        amounts = np.bincount(fix, steps, minlength=size + 1)
        counts = np.bincount(fix, minlength=size + 1)
        if size:
            amounts[0] += self.amount
            counts[0] += self.readings
            self.amount, self.readings = 0.0, 0
        self.amount += float(amounts[size])
        self.readings += int(counts[size])
        return amounts[:size].tolist(), counts[:size].tolist()
