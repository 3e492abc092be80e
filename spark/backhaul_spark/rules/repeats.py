"""Tell new messages from repeats, by (device, lane, epoch, seq), in 48 bytes a lane.

Of each lane the highest seq is kept, which of the 64 up to it came, and the largest hole below:
after a loss the vehicle sends again from a hole's low end upwards, so one number says how far it is
filled. What lies below and in no hole is taken for a repeat. A second hole of over 64 messages in one lane is
therefore not made good here: rules miss it, the history does not (coverage keeps every range).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.rules.table import Table

LANE = np.dtype(
    [("high", "i8"), ("seen", "u8"), ("hole_low", "i8"), ("hole_high", "i8"), ("stored_ns", "i8")]
)
WINDOW = 64
_SECTION = "lane"


def lane_table() -> Table:
    """Return an empty table of lanes."""
    return Table({_SECTION: np.zeros(1, LANE)})


def first_times(table: Table, messages: NDArray[np.void]) -> Flags:
    """Say of each message (batch.MESSAGE) whether it comes for the first time; remember it.

    `messages`: (n,), dtype MESSAGE; the result is (n,) bool.
    """
    fresh = np.zeros(len(messages), np.bool_)
    if not len(messages):
        return fresh
    lanes, seqs = messages["lane"], messages["seq"]
    order = np.lexsort((seqs, lanes))
    lane, seq = lanes[order], seqs[order]
    once = np.ones(len(order), np.bool_)
    once[1:] = (lane[1:] != lane[:-1]) | (seq[1:] != seq[:-1])
    rows = table.rows(lane)
    once &= _unknown(table[_SECTION][rows], seq)
    fresh[order] = once
    if once.any():
        _remember(table[_SECTION], rows[once], seq[once])
    # Of repeats too: a lane that only repeats itself is still spoken in.
    np.maximum.at(table[_SECTION]["stored_ns"], rows, messages["stored_ns"][order])
    return fresh


def forget(table: Table, before_ns: int) -> None:
    """Drop lanes in which nothing was stored since."""
    table.keep(table[_SECTION]["stored_ns"] >= before_ns)


def _unknown(lane: NDArray[np.void], seq: Ints) -> Flags:
    back = lane["high"] - seq
    near = np.clip(back, 0, WINDOW - 1).astype(np.uint64)
    unseen = (back < WINDOW) & ((lane["seen"] >> near) & np.uint64(1) == 0)
    hole = (back >= WINDOW) & (seq >= lane["hole_low"]) & (seq <= lane["hole_high"])
    return np.asarray((back < 0) | ((back >= 0) & unseen) | hole)


def _remember(lanes: NDArray[Any], rows: NDArray[np.intp], seq: Ints) -> None:
    """Take in new seqs, sorted by row and seq."""
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    row = rows[starts]
    before = lanes["high"][row]
    high = np.maximum(before, np.maximum.reduceat(seq, starts))
    _fill_hole(lanes, rows, seq)
    _open_hole(lanes, rows, seq, starts)
    shift = high - before
    moved = lanes["seen"][row] << np.minimum(shift, WINDOW - 1).astype(np.uint64)
    lanes["seen"][row] = np.where(shift < WINDOW, moved, 0)
    lanes["high"][row] = high
    back = lanes["high"][rows] - seq
    inside = back < WINDOW
    bits = np.uint64(1) << back[inside].astype(np.uint64)
    np.bitwise_or.at(lanes["seen"], rows[inside], bits)


def _fill_hole(lanes: NDArray[Any], rows: NDArray[np.intp], seq: Ints) -> None:
    """Move the low end of gaps up behind the new messages, unless one came out of turn, far above it."""
    far = lanes["high"][rows] - seq >= WINDOW
    for _ in range(2):  # what lies in the window joins on to what lies below it
        low = lanes["hole_low"][rows]
        inside = (seq >= low) & (seq <= lanes["hole_high"][rows]) & (far | (seq - low < WINDOW))
        np.maximum.at(lanes["hole_low"], rows[inside], seq[inside] + 1)


def _open_hole(
    lanes: NDArray[Any], rows: NDArray[np.intp], seq: Ints, starts: NDArray[np.intp]
) -> None:
    """Note the largest gap above the former highest seq, if it is larger than the one known."""
    below = np.r_[0, seq[:-1]]
    below[starts] = 0
    below = np.maximum(below, lanes["high"][rows])
    size = seq - 1 - below
    largest = np.lexsort((size, rows))
    last = largest[np.flatnonzero(np.r_[rows[1:] != rows[:-1], True])]
    row = rows[last]
    known = lanes["hole_high"][row] - lanes["hole_low"][row] + 1
    wins = size[last] > np.maximum(known, 0)
    lanes["hole_low"][row[wins]] = below[last[wins]] + 1
    lanes["hole_high"][row[wins]] = seq[last[wins]] - 1
