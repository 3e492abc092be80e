"""Sets of sequence numbers, kept as ranges, for continuity and deduplication."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

# Of all empty sets, of which a hub has three for each lane; nobody changes it.
_NONE: list[int] = []


class RangeSet:
    """A set of whole numbers from 1 on, stored as sorted, disjoint, inclusive ranges.

    A lane that lost nothing is one range however long it runs, so the set stays small: its
    size is the number of holes, not of numbers. Adding to the end costs O(1), elsewhere
    O(log ranges) to find and O(ranges) to insert.
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows, self._highs = _NONE, _NONE
        for low, high in ranges:
            self.add(low, high)

    def add(self, low: int, high: int | None = None) -> int:
        """Add `low..high` inclusive (`low` alone without `high`); return how many were new.

        Raises:
            ValueError: where `low` is below 1 or above `high`.
        """
        high = low if high is None else high
        if not 1 <= low <= high:
            raise ValueError(f"not a range of sequence numbers: {low}..{high}")
        if not self._highs:
            self._lows, self._highs = [low], [high]
            return high - low + 1
        if self._highs[-1] + 1 == low:  # what nearly every call adds
            self._highs[-1] = high
            return high - low + 1
        # The ranges that touch or overlap low..high, neighbours included, become one.
        first = bisect_left(self._highs, low - 1)
        last = bisect_right(self._lows, high + 1)
        already = 0
        merged_low, merged_high = low, high
        for index in range(first, last):
            start, end = self._lows[index], self._highs[index]
            already += max(0, min(end, high) - max(start, low) + 1)
            merged_low, merged_high = min(merged_low, start), max(merged_high, end)
        self._lows[first:last] = [merged_low]
        self._highs[first:last] = [merged_high]
        return high - low + 1 - already

    def __contains__(self, number: int) -> bool:
        index = bisect_left(self._highs, number)
        return index < len(self._lows) and self._lows[index] <= number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges, ascending, each as (low, high) inclusive."""
        return iter(zip(self._lows, self._highs, strict=True))

    def __len__(self) -> int:
        """Count the ranges (not the numbers: that is `total`)."""
        return len(self._lows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        inside = ", ".join(f"{low}..{high}" if low != high else str(low) for low, high in self)
        return f"RangeSet({inside})"

    @property
    def total(self) -> int:
        """How many numbers the set holds."""
        return sum(self._highs) - sum(self._lows) + len(self._lows)

    @property
    def highest(self) -> int:
        """The greatest number held, 0 where the set is empty."""
        return self._highs[-1] if self._highs else 0

    @property
    def contiguous(self) -> int:
        """The greatest n such that 1..n are all held, 0 where 1 is missing."""
        return self._highs[0] if self._lows and self._lows[0] == 1 else 0

    def holes(self, low: int = 1, high: int | None = None) -> list[tuple[int, int]]:
        """List the ranges within `low..high` (by default up to `highest`) that are not held."""
        high = self.highest if high is None else high
        found: list[tuple[int, int]] = []
        for index in range(bisect_left(self._highs, low), len(self._lows)):
            start, end = self._lows[index], self._highs[index]
            if start > high:
                break
            if start > low:
                found.append((low, start - 1))
            low = max(low, end + 1)
        if low <= high:
            found.append((low, high))
        return found

    def union(self, other: RangeSet) -> RangeSet:
        """Return a new set that is the union of both."""
        result = RangeSet(self)
        for low, high in other:
            result.add(low, high)
        return result
