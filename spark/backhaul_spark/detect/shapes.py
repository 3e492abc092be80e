"""Say how far the course of the last readings is from every course remembered. Pure."""

from __future__ import annotations

import numpy as np

from backhaul_spark.arrays import Floats

# A course is so many means; so many courses are remembered, the newest.
MEANS, COURSES = 8, 128
_COUNTERS = 4


class Courses:
    """Courses of one series, each overlapping the one before in all means but one.

    Args:
        readings: in each mean.
    """

    __slots__ = ("_courses", "_known", "_last", "_next", "_pending", "_readings", "_sum", "_taken")

    def __init__(self, readings: int) -> None:
        self._readings = readings
        self._courses = np.zeros((COURSES, MEANS))
        self._last = np.zeros(MEANS)
        self._known = self._next = self._pending = self._taken = 0
        self._sum = 0.0

    def distance(self, value: float, width: float) -> float:
        """Take a reading in; with the last of a mean's, return the distance from the nearest course.

        Args:
            value: the reading, in any unit.
            width: of all values so far, in the same unit.

        Returns:
            The root of the mean square, in parts of `width`; 0 between, and for the first.
        """
        self._sum += value
        self._pending += 1
        if self._pending < self._readings:
            return 0.0
        self._last = np.append(self._last[1:], self._sum / self._readings)
        self._sum, self._pending = 0.0, 0
        self._taken = min(self._taken + 1, MEANS)
        if self._taken < MEANS:
            return 0.0
        found = 0.0
        if self._known:
            off = self._courses[: self._known] - self._last
            nearest = float(np.einsum("ij,ij->i", off, off).min())
            found = (nearest / MEANS) ** 0.5 / (width or 1.0)
        self._courses[self._next] = self._last
        self._next = (self._next + 1) % COURSES
        self._known = min(self._known + 1, COURSES)
        return found

    def pack(self) -> Floats:
        """Return the state, (n,) float64, always of one length."""
        counters = [self._known, self._next, self._pending, self._taken, self._sum]
        return np.concatenate([counters, self._last, self._courses.ravel()])

    def unpack(self, packed: Floats) -> None:
        """Restore the result of `pack`, (n,) float64."""
        counters = packed[:_COUNTERS].astype(int).tolist()
        self._known, self._next, self._pending, self._taken = counters
        self._sum = float(packed[_COUNTERS])
        start = _COUNTERS + 1
        self._last = packed[start : start + MEANS].copy()
        self._courses = packed[start + MEANS :].reshape(COURSES, MEANS).copy()
