"""Cut samples into rounds in which each device has one at most, in the order of time.

And say what came behind something newer, so that nothing depends on where batches end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rounds(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield the places of each device's first sample, of each one's second, and so on.

    Args:
        rows: whose sample each is, sorted; within a device in the order of time.
    """
    if not len(rows):
        return
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    order = np.argsort(rank, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(rank))[:-1])


def overtaken(
    group: NDArray[np.intp], stored_ns: NDArray[np.int64], time_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Say of which samples a message that was stored before has a newer one of the same group."""
    order = np.lexsort((stored_ns, group))
    starts, rank = firsts(group[order]), _ranks(time_ns[order])
    found = np.empty(len(order), np.bool_)
    found[order] = rank < _newest_before(starts, starts | firsts(stored_ns[order]), rank)
    return found


def replays(
    group: NDArray[np.intp], stored_ns: NDArray[np.int64], time_ns: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return of each sample how often its group went back in time before, from message to message."""
    order = np.lexsort((time_ns, stored_ns, group))
    starts, time_ns = firsts(group[order]), time_ns[order]
    back = ~starts & firsts(stored_ns[order]) & np.r_[False, time_ns[1:] < time_ns[:-1]]
    count = np.cumsum(back)
    number = np.empty(len(order), np.intp)
    number[order] = count - count[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return number


def _ranks(values: NDArray[np.int64]) -> NDArray[np.intp]:
    return np.searchsorted(np.sort(values), values)


def _newest_before(
    starts: NDArray[np.bool_], messages: NDArray[np.bool_], rank: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the highest rank of a group before each message, -1 for none. All by group and message."""
    # One running maximum serves all groups: each one's ranks are above those of the groups before.
    above = len(rank) * np.cumsum(starts)
    highest = np.maximum.accumulate(rank + above)
    first = np.flatnonzero(messages)[np.cumsum(messages) - 1]
    return np.where(starts[first], -1, highest[first - 1] - above)


def firsts(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Say where each device's part of sorted rows begins."""
    return np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, np.bool_)
