"""Cut samples into rounds in which each device has one at most, in the order in which they were stored.

And say what came behind something newer, so that nothing depends on where batches end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Ints


def rounds(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield the places of each device's first sample, of each one's second, and so on.

    `rows` is (samples,) intp, as is what each round takes of it: whose sample each is, sorted; a device's own stand in
    the order in which it takes them.
    """
    if not len(rows):
        return
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    order = np.argsort(rank, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(rank))[:-1])


def newest_before(group: NDArray[np.intp], time_ns: Ints, newest_ns: Ints) -> Ints:
    """Return the newest time, ns, that each sample's group had just before it.

    `group` is intp, the times int64, ns since 1970; all are (samples,). A group's samples are in the order in which
    they were stored; `newest_ns` is what it had before the first of them.
    """
    order = np.argsort(group, kind="stable")
    starts = firsts(group[order])
    before = np.where(starts, newest_ns[order], np.r_[0, time_ns[order][:-1]])
    ascending = np.sort(before)
    # One running maximum serves all groups: each one's ranks are above those of the groups before.
    above = len(order) * np.cumsum(starts)
    highest = np.maximum.accumulate(np.searchsorted(ascending, before) + above) - above
    found = np.empty(len(order), np.int64)
    found[order] = ascending[highest]
    return found


def firsts(rows: NDArray[Any]) -> Flags:
    """Say where each device's part of sorted rows begins.

    `rows`: (n,) intp, ascending; the result is (n,) bool.
    """
    return np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, np.bool_)
