"""Cut samples into rounds in which each device has one at most, in the order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def firsts(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Say where each device's part of sorted rows begins."""
    return np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, np.bool_)
