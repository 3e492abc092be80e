"""Find by how much a device's day is moved against the fleet's: the day that all live through shows its clock. Pure numpy.

Cabins warm up by day. If the readings of one vehicle do so three hours later, its clock is ahead by three hours,
or it lives elsewhere. A sensor that drifts or sticks, and one that is off, are moved by no time.
"""

from __future__ import annotations

import numpy as np

from backhaul_spark.arrays import Floats, Ints

HOURS = 24
STEPS = 4
"""Shifts are tried by the quarter of an hour: what is nearer is as one."""
OTHERS_MIN = 8
"""Fewer others have no rhythm that one could know."""
HOURS_MIN = 12
"""A device with less than half a day has none either."""
RHYTHM_MIN = 3.0
"""A signal has a daily rhythm if it moves so many times as much as a device usually lies off it."""
FITS = 2.5
"""A moved day fits if it lies off by no more than this, in units of what is usual."""
WORSE = 4.0
"""The day as it is must lie off by so many times as much."""
_CAP = 100.0
_AT_ONCE = 512


class Rhythms:
    """Compares the days of some devices, signal by signal, with the middle of the fleet's.

    Args:
        rows: numbers of the devices that are asked about, shape (n,).
    """

    def __init__(self, rows: Ints) -> None:
        self._rows = rows
        self._off = np.zeros((len(rows), HOURS * STEPS))
        self._signals = np.zeros(len(rows), np.int64)
        self._others = np.zeros(len(rows), np.int64)

    def take(self, levels: Floats) -> None:
        """Take in one signal.

        Args:
            levels: mean of each hour of the day of all devices, shape (devices, 24), float64, in the unit of the
                signal; NaN for none.
        """
        if not len(self._rows) or levels.shape[1] != HOURS:
            return
        there = ~np.isnan(levels)
        enough = there.sum(axis=1) >= HOURS_MIN
        others = int(enough.sum()) - 1
        if others < OTHERS_MIN or (there[enough].sum(axis=0) <= OTHERS_MIN).any():
            return
        own = _centred(levels[enough])
        middle = np.nanmedian(own, axis=0)
        usual = float(np.median(_distance(own, middle)))
        if not 0 < usual * RHYTHM_MIN < float(np.mean(np.abs(middle))):
            return
        moved = _moved(middle)
        asked = np.flatnonzero(enough[self._rows])
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            apart = levels[self._rows[some], None, :] - moved
            off = _distance(_centred(apart), 0.0)
            self._off[some] += np.minimum(off / usual, _CAP)
        self._signals[asked] += 1
        self._others[asked] = np.maximum(self._others[asked], others)

    def found(self) -> list[tuple[int, float, int]]:
        """Return device number, s that its day is moved (positive: later, at most half a day), and how many others."""
        found = []
        for at in np.flatnonzero(self._signals).tolist():
            off = self._off[at] / self._signals[at]
            best = int(np.argmin(off))
            if best and off[best] <= FITS and off[0] >= WORSE * max(off[best], 1.0):
                steps = best if best <= HOURS * STEPS // 2 else best - HOURS * STEPS
                found.append((int(self._rows[at]), steps * 3600.0 / STEPS, int(self._others[at])))
        return found


def _centred(levels: Floats) -> Floats:
    centred: Floats = levels - np.nanmean(levels, axis=-1, keepdims=True)
    return centred


def _distance(levels: Floats, middle: Floats | float) -> Floats:
    distance: Floats = np.nanmean(np.abs(levels - middle), axis=-1)
    return distance


def _moved(middle: Floats) -> Floats:
    """Return a day moved by each step, shape (steps, hours), as a clock that is ahead stamps it."""
    hours = np.arange(HOURS, dtype=float)
    return np.array(
        [
            np.interp(
                (hours - step / STEPS) % HOURS, np.arange(HOURS + 1), np.append(middle, middle[0])
            )
            for step in range(HOURS * STEPS)
        ]
    )
