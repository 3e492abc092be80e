"""Find sensors that stand still while those of the peers do not. Pure numpy.

A vehicle in a garage stands still too: it is at rest, as most of its other signals say. What stood
still on a day before and moved again afterwards does so at times, and is no sensor that sticks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.fleet.cohorts import Cohorts
from backhaul_spark.fleet.readings import Cells

HOURS_MIN = 3
HOURS_MIN_ALONE = 6
"""Without peers nobody shows that such a stillness is odd; a device's own past and its other signals do."""
COUNT_MIN = 30
DEVICES_SHARE_MAX = 0.01
"""A signal of which more devices than that seem to stick is one that stands still at times."""
VARYING_SHARE_MIN = 0.5
"""A device of which less of its signals vary is at rest, and none of them sticks."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Which devices stand still while their peers vary: hours and readings of the longest run.

    `varied`: whether the signal varied before, within the scope. `restless`: whether the peers have
    not an hour without a change.
    """

    rows: Ints
    hours: Ints
    count: Ints
    value: Floats
    varied: Flags
    restless: Flags


def find_stuck(cohorts: Cohorts, cells: Cells, past: Cells | None, level: Ints) -> Stuck:
    """Find the devices that stand still for hours in which their peers do not.

    `cells` are by the hour, `past` by the day, oldest first; None where nothing is known of the days before.
    `level` is (devices,) int64, that of each device's peers (cohorts.py).
    """
    hours, count, value = longest_runs(cells)
    present: Flags = np.logical_or.reduce(cells.count > 0, axis=1)
    usual = cohorts.upper(np.where(present, hours, np.nan), level)
    candidate = (hours >= HOURS_MIN) & (count >= COUNT_MIN) & (hours > 1.5 * usual)
    alone = present & (level < 0) & moves_by_itself(cells, past)
    candidate |= alone & (hours >= HOURS_MIN_ALONE) & (count >= COUNT_MIN)
    usual = np.where(alone, 0.0, usual)
    if past is not None:
        candidate &= ~_rests_at_times(past)
    rows = np.flatnonzero(candidate)
    if len(rows) > max(3, DEVICES_SHARE_MAX * present.sum()):
        rows = rows[:0]
    varied: Flags = np.logical_or.reduce(cells.spread[rows] > 0, axis=1)
    return Stuck(rows, hours[rows], count[rows], value[rows], varied, usual[rows] == 0)


def moves_by_itself(cells: Cells, past: Cells | None) -> Flags:
    """Return which devices' signals moved on a day before, or earlier on this one."""
    moved: Flags = np.logical_or.reduce(cells.spread > 0, axis=1)
    if past is None:
        return moved
    before: Flags = np.logical_or.reduce(past.spread > 0, axis=1)
    return moved | before


def _rests_at_times(past: Cells) -> Flags:
    """Return which devices stood still for a day and moved on a later one, or never moved at all."""
    days = np.arange(past.spread.shape[1])
    last_moved = np.where(past.spread > 0, days, -1).max(axis=1)
    first_still = np.where(past.spread == 0, days, len(days)).min(axis=1)
    never_moved = last_moved < 0
    found: Flags = (first_still < len(days)) & (never_moved | (first_still < last_moved))
    return found


class Movement:
    """Counts in how many signals each device varies, of those in which most of its peers do.

    What hardly any vehicle changes (a setting, a door) says nothing about who is at rest.
    """

    def __init__(self, cohorts: Cohorts) -> None:
        self._cohorts = cohorts
        self._signals = np.zeros(len(cohorts), dtype=np.int64)
        self._varying = np.zeros(len(cohorts), dtype=np.int64)

    def take(self, cells: Cells, level: Ints, past: Cells | None = None) -> Flags:
        """Take in one signal; return for which devices it counts.

        `level` is (devices,) int64; the result is (devices,) bool.

        Of a device without peers (`level` -1) its own days tell whether the signal is one that varies.
        """
        present = (cells.count > 0).any(axis=1)
        varies = (cells.spread > 0).any(axis=1)
        usual = self._cohorts.centre(np.where(present, varies.astype(float), np.nan), level)
        lively: Flags = present & ((usual > 0) | ((level < 0) & moves_by_itself(cells, past)))
        self._signals += lively
        self._varying += lively & varies
        return lively

    def at_rest(self, stuck: Stuck, lively: Flags) -> Flags:
        """Return which of the stuck devices are at rest, as far as their other signals say.

        Where there is no other, it is a signal that never rests in anyone which speaks for itself.
        `lively`: what `take` returned for the signal that they are stuck in, (devices,) bool; so is the result.
        """
        counted = lively[stuck.rows]
        others = self._signals[stuck.rows] - counted
        varying = self._varying[stuck.rows] - (counted & stuck.varied)
        found: Flags = np.where(others > 0, varying < VARYING_SHARE_MIN * others, ~stuck.restless)
        return found


def longest_runs(cells: Cells) -> tuple[Ints, Ints, Floats]:
    """Return of each device the longest run of hours without any change: hours, readings, value.

    An hour without readings neither ends a run nor counts.
    """
    devices, windows = cells.level.shape
    best, best_count = np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64)
    best_value = np.full(devices, np.nan)
    run, count, value = best.copy(), best.copy(), best_value.copy()
    for window in range(windows):
        there = cells.count[:, window] > 0
        level = cells.level[:, window]
        still = there & (cells.spread[:, window] == 0)
        goes_on = still & (level == value)
        run = np.where(goes_on, run + 1, np.where(still, 1, np.where(there, 0, run)))
        more = cells.count[:, window]
        count = np.where(goes_on, count + more, np.where(still, more, np.where(there, 0, count)))
        value = np.where(still, level, np.where(there, np.nan, value))
        longer = run > best
        best, best_count = np.where(longer, run, best), np.where(longer, count, best_count)
        best_value = np.where(longer, value, best_value)
    return best, best_count, best_value
