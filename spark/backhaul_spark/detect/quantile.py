"""Follow a quantile of a stream of numbers in five markers: the P² algorithm.

Source: Jain and Chlamtac, "The P² Algorithm for Dynamic Calculation of Quantiles and Histograms
Without Storing Observations", Communications of the ACM 28(10), 1985.
"""

from __future__ import annotations

from bisect import bisect_right

MARKERS = 5
FLOATS = 1 + 2 * MARKERS


class Quantile:
    """Estimate one quantile of the values so far, older ones weighted less.

    Args:
        share: which, 0.5 for the median.
        memory: of about how many numbers; when so many have come, they count half.
    """

    __slots__ = ("_heights", "_memory", "_places", "_shares", "count")

    def __init__(self, share: float, memory: int) -> None:
        self.count = 0.0
        self._memory = memory
        self._shares = (0.0, share / 2, share, (1 + share) / 2, 1.0)
        self._heights: list[float] = []  # of the numbers at the markers, ascending
        self._places: list[float] = []  # how many numbers are at or below each, ascending

    @property
    def value(self) -> float:
        """Return the estimate; 0 while nothing has come."""
        heights = self._heights
        if len(heights) < MARKERS:
            return heights[int(self._shares[2] * len(heights))] if heights else 0.0
        return heights[2]

    def pack(self) -> list[float]:
        """Return the state, FLOATS numbers; the memory and the share are the caller's to know."""
        heights = self._heights + [0.0] * (MARKERS - len(self._heights))
        places = self._places or [0.0] * MARKERS
        return [self.count, *heights, *places]

    def unpack(self, packed: list[float]) -> None:
        """Restore the result of `pack`; zeros are a new one."""
        self.count = packed[0]
        known = min(int(self.count), MARKERS)
        self._heights = packed[1 : 1 + known]
        self._places = packed[1 + MARKERS : FLOATS] if known else []

    def add(self, number: float) -> None:
        """Take a finite number in."""
        self.count += 1
        heights, places = self._heights, self._places
        if len(heights) < MARKERS:
            heights.insert(bisect_right(heights, number), number)
            self._places = [1.0, 2.0, 3.0, 4.0, 5.0]
            return
        heights[0] = min(heights[0], number)
        heights[4] = max(heights[4], number)
        for marker in range(bisect_right(heights, number, 1, 4), MARKERS):
            places[marker] += 1
        for marker in (1, 2, 3):
            self._move(marker)
        if self.count >= self._memory:
            self._forget()

    def _move(self, marker: int) -> None:
        """Move a marker by one place towards where its share of the numbers is."""
        places = self._places
        wanted = 1 + self._shares[marker] * (self.count - 1)
        step = 1 if wanted > places[marker] else -1
        gap = places[marker + step] - places[marker]
        if abs(wanted - places[marker]) < 1 or abs(gap) <= 1:
            return
        self._heights[marker] = self._height(marker, step)
        places[marker] += step

    def _height(self, marker: int, step: int) -> float:
        """Return the height one place on: on a parabola through three markers, or on a line."""
        (below, here, above), (low, at, high) = (
            self._heights[marker - 1 : marker + 2],
            self._places[marker - 1 : marker + 2],
        )
        right, left = (above - here) / (high - at), (here - below) / (at - low)
        curve = here + step / (high - low) * ((at - low + step) * right + (high - at - step) * left)
        if below < curve < above:
            return curve
        return here + (right if step == 1 else left) * step

    def _forget(self) -> None:
        self.count /= 2
        # The first marker stays at place 1: it has one number at or below it, itself.
        self._places = [1 + (place - 1) / 2 for place in self._places]
