"""Turn one signal's cells into numbers a device, each with its peers' numbers. Pure numpy.

Each hour is compared with the same hour of the peers first: a device that was silent half the day
is compared with what its peers did in the other half, and a hot afternoon is nobody's fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.fleet.cohorts import PEERS_MIN
from backhaul_spark.fleet.robust import MAD_TO_SIGMA

if TYPE_CHECKING:
    from backhaul_spark.fleet.cohorts import Cohorts, Reference
    from backhaul_spark.fleet.readings import Cells

Kind = Literal["level", "drift", "moved", "drain"]

SLOPE_HOURS_MIN = 6
PAST_DAYS_MIN = 1
PAST_COUNT_MIN = 0.5
"""A day of which a device has less than this of the usual readings is no past to go by."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number a device, and how far it is from its peers.

    Attributes:
        kind: `level` (offset from the peers), `drift` (offset that grows, an hour), `moved`
            (offset against that of the days before), `drain` (fall an hour while falling).
        value: of each device, NaN where it cannot be said.
        score: robust deviations from the peers, NaN where it cannot be said.
        shown, expected: the value and the peers' in the signal's own unit.
    """

    kind: Kind
    value: Floats
    score: Floats
    shown: Floats
    expected: Floats
    reference: Reference


class SignalMeasures:
    """One signal over one scope (an hour or a day).

    Args:
        cells: by the hour.
        past: by the day, the days before; None where nothing is known of them.
    """

    def __init__(self, cohorts: Cohorts, cells: Cells, past: Cells | None) -> None:
        self._cohorts, self._cells, self._past = cohorts, cells, past
        self.present: Flags = np.logical_or.reduce(cells.count > 0, axis=1)
        self.peer_level = cohorts.level_of(self.present)
        self.mean = row_mean(cells.level)
        self.fall = row_mean(np.where(cells.fall > 0, cells.fall, np.nan))
        self._offsets = self.offsets(cells.level, self.peer_level)
        self._offset = row_mean(self._offsets)

    def offsets(self, levels: Floats, at: Ints) -> Floats:
        """Return each window's distance from the median of the peers in that window.

        `levels`: (devices, windows) float64, in the unit of the signal; so is the result. `at`: (devices,)
        int64, the level of the peers.
        """
        result = np.full(levels.shape, np.nan)
        for window in range(levels.shape[1]):
            column = levels[:, window]
            there: Flags = ~np.isnan(column)
            enough = self._enough(there, at)
            result[enough, window] = (column - self._cohorts.centre(column, at))[enough]
        return result

    def _enough(self, present: Flags, at: Ints) -> Flags:
        enough = np.zeros(len(at), dtype=bool)
        for level in range(3):
            enough |= present & (at == level) & (self._cohorts.others(present, level) >= PEERS_MIN)
        return enough

    def level(self) -> Measure:
        """Measure how far above or below its peers a device lies."""
        return self._measure("level", self._offset, self.mean, self._widening())

    def drift(self) -> Measure:
        """Measure how much farther from its peers a device gets each hour."""
        there = ~np.isnan(self._offsets)
        hour = np.where(there, np.arange(there.shape[1], dtype=float), np.nan)
        away = hour - row_mean(hour)[:, None]
        squares = np.nansum(away**2, axis=1)
        ok = (there.sum(axis=1) >= SLOPE_HOURS_MIN) & (squares > 0)
        products = np.nansum(away * self._offsets, axis=1)
        slope = np.where(ok, products / np.where(ok, squares, 1), np.nan)
        usual = np.median(squares[ok]) if ok.any() else 1.0
        wider = np.sqrt(np.maximum(usual / np.where(ok, squares, 1), 1))
        return self._measure("drift", slope, slope, wider)

    def moved(self) -> Measure | None:
        """Measure how a device's distance from its peers changed against the days before."""
        if self._past is None:
            return None
        before = self.offsets(_whole_days(self._past), self.peer_level)
        known = (~np.isnan(before)).sum(axis=1) >= PAST_DAYS_MIN
        if not known.any():
            return None
        own, own_scale = np.full(len(known), np.nan), np.zeros(len(known))
        own[known] = np.nanmedian(before[known], axis=1)
        apart = np.abs(before[known] - own[known, None])
        own_scale[known] = np.nanmedian(apart, axis=1) * MAD_TO_SIGMA
        moved = self._offset - own
        return self._measure("moved", moved, moved, self._widening(), own_scale)

    def drain(self) -> Measure:
        """Measure how fast a device falls while it falls; only faster than its peers counts."""
        falling = (self._cells.fall > 0).sum(axis=1)
        return self._measure("drain", self.fall, self.fall, _wider(falling))

    def _widening(self) -> Floats:
        return _wider((~np.isnan(self._offsets)).sum(axis=1))

    def _measure(
        self,
        kind: Kind,
        value: Floats,
        shown: Floats,
        wider: Floats,
        least_scale: Floats | float = 0.0,
    ) -> Measure:
        reference = self._cohorts.reference(value)
        scale = np.maximum(reference.scale, least_scale) * wider
        with np.errstate(all="ignore"):
            score = (value - reference.centre) / scale
        return Measure(kind, value, score, shown, shown - (value - reference.centre), reference)

    def peers_of(self, row: int) -> tuple[int, int]:
        """Return how many peers a device has in this signal, and at which level."""
        level = int(self.peer_level[row])
        if level < 0:
            return 0, level
        return int(self._cohorts.others(self.present, level)[row]), level


def _whole_days(past: Cells) -> Floats:
    """Return the levels of days of which a device has as good as all readings."""
    count = np.where(past.count > 0, past.count, np.nan)
    usual = [np.nanmedian(day) if (day > 0).any() else 0.0 for day in count.T]
    with np.errstate(invalid="ignore"):
        return np.where(count >= PAST_COUNT_MIN * np.array(usual), past.level, np.nan)


def row_mean(values: Floats) -> Floats:
    """Return the mean of the values in each row, NaN for empty rows.

    `values`: (rows, columns) float64, NaN for none; the result is (rows,) float64.
    """
    there = ~np.isnan(values)
    number = there.sum(axis=1)
    total = np.where(there, values, 0).sum(axis=1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _wider(hours: Ints) -> Floats:
    """Return by how much the mean of few hours scatters more than that of the usual number."""
    some = hours[hours > 0]
    usual = float(np.median(some)) if len(some) else 1.0
    return np.sqrt(np.maximum(usual / np.maximum(hours, 1), 1.0))
