"""Make rows of the readings of several series: at each step of time the newest value of each. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from backhaul_spark.arrays import Floats

# Of a series that stays behind so many steps, no row waits any more.
STEPS = 64
# So many steps a value counts on where its series says nothing new.
HOLD = 10
_HEAD = 2


class Row(NamedTuple):
    """One row: the end of its step, ns since 1970, and a value for each series, NaN for none."""

    time_ns: int
    values: list[float]


class JoinedRows:
    """Rows of one device's series, the same however far one series runs ahead of another (STEPS at most).

    Each series' own readings come in the order of their times.

    Args:
        step_ns: the time that one row stands for.
        state: (floats_of(series),) float64 that it keeps its state in; zeros at first.
    """

    def __init__(self, series: int, step_ns: int, state: Floats | None = None) -> None:
        self._step_ns = step_ns
        state = np.zeros(floats_of(series)) if state is None else state
        self._counters = state[
            :_HEAD
        ]  # the next step to close plus one (0: none yet), and the newest
        parts = state[_HEAD:].reshape(3 + 2 * STEPS, series)
        self._newest, self._held, self._held_at = parts[:3]
        self._values, self._known = parts[3 : 3 + STEPS], parts[3 + STEPS :]

    def add(self, series: int, time_ns: int, value: float) -> list[Row]:
        """Take a reading in, and return the rows that are whole by it.

        A value that is not finite is a sign of life and no value. A reading of a step that is closed is too late.
        """
        step = time_ns // self._step_ns
        if not self._counters[0]:
            self._counters[:] = step + 1, step
            self._newest[:] = step - 1
        found = []
        if step - self._next >= STEPS:
            found = self._close(step - STEPS + 1)
        self._newest[series] = max(self._newest[series], step)
        self._counters[1] = max(self._counters[1], step)
        if step >= self._next and math.isfinite(value):
            self._values[step % STEPS, series] = value
            self._known[step % STEPS, series] = 1
        waited = self._newest[self._counters[1] - self._newest < STEPS]
        return found + self._close(int(waited.min()))

    def rest(self) -> list[Row]:
        """Return the rows that wait: nothing comes any more."""
        return self._close(int(self._counters[1]) + 1) if self._counters[0] else []

    @property
    def _next(self) -> int:
        return int(self._counters[0]) - 1

    def _close(self, end: int) -> list[Row]:
        """Close the steps before `end`; one without any reading makes no row."""
        found = []
        for step in range(self._next, min(end, self._next + STEPS)):
            place = step % STEPS
            new = self._known[place] > 0
            if new.any():
                self._held[new] = self._values[place][new]
                self._held_at[new] = step + 1  # 0 is never
                fresh = (self._held_at > 0) & (step + 1 - self._held_at <= HOLD)
                values = np.where(fresh, self._held, np.nan).tolist()
                found.append(Row((step + 1) * self._step_ns, values))
                self._known[place] = 0
        self._counters[0] = max(self._next, end) + 1
        return found


def floats_of(series: int) -> int:
    """Return the length of the state."""
    return _HEAD + (3 + 2 * STEPS) * series
