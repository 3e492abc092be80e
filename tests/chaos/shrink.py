"""Find a few faults of many that still do the damage: delta debugging (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")


def shrink(
    items: Sequence[Item], fails: Callable[[list[Item]], bool], *, trials_max: int
) -> list[Item]:
    """Return a part of `items`, in their order, that still fails.

    Where it ends by itself, no single item can be left out; it stops early after `trials_max` calls
    of `fails`, each of which may be a whole run. `items` themselves are taken to fail.
    """
    left, parts, trials = list(items), 2, 0
    while len(left) > 1:
        for candidate in _candidates(left, parts):
            if trials == trials_max:
                return left
            trials += 1
            if fails(candidate):
                # A half that fails is cut in two again; of what is left of more, as finely as before.
                parts = 2 if len(candidate) <= len(left) // parts + 1 else max(parts - 1, 2)
                left = candidate
                break
        else:
            if parts >= len(left):
                return left
            parts = min(len(left), parts * 2)
    return left


def _candidates(items: list[Item], parts: int) -> Iterator[list[Item]]:
    """Yield each of `parts` pieces alone, then all but each."""
    edges = [len(items) * part // parts for part in range(parts + 1)]
    pieces = [items[low:high] for low, high in pairwise(edges)]
    yield from pieces
    if parts > 2:
        for leave_out in range(parts):
            yield [each for at, piece in enumerate(pieces) if at != leave_out for each in piece]
