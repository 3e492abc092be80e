"""RangeSet against a plain set of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.ranges import RangeSet

RANGES = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
)


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in ranges for number in range(low, high + 1)}


@given(RANGES)
def test_holds_exactly_what_was_added(ranges: list[tuple[int, int]]) -> None:
    expected: set[int] = set()
    held = RangeSet()
    for low, high in ranges:
        added = numbers([(low, high)])
        assert held.add(low, high) == len(added - expected)
        expected |= added
    assert {number for number in range(1, 80) if number in held} == expected
    assert numbers(list(held)) == expected
    assert held.total == len(expected)
    assert held.highest == max(expected, default=0)
    pairs = list(held)
    assert all(high + 1 < low for (_, high), (low, _) in itertools.pairwise(pairs))


@given(RANGES, st.integers(1, 40), st.integers(0, 40))
def test_holes_are_the_complement(ranges: list[tuple[int, int]], low: int, length: int) -> None:
    held, high = RangeSet(ranges), low + length
    assert numbers(held.holes(low, high)) == numbers([(low, high)]) - numbers(ranges)
    assert numbers(held.holes()) == set(range(1, held.highest + 1)) - numbers(ranges)


@given(RANGES)
def test_contiguous_stops_before_the_first_hole(ranges: list[tuple[int, int]]) -> None:
    expected = 0
    while expected + 1 in numbers(ranges):
        expected += 1
    assert RangeSet(ranges).contiguous == expected


@given(RANGES, RANGES)
def test_union_is_the_union(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert RangeSet(left).union(RangeSet(right)) == RangeSet(left + right)


@pytest.mark.parametrize(("low", "high"), [(0, 3), (5, 4), (-1, -1)])
def test_refuses_what_is_no_range(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        RangeSet().add(low, high)
