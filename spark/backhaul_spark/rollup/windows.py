"""Sum rows up by window: numpy over rows sorted by series and time. No Spark in here.

The order of the rows decides every bit of a float sum: `rollup/sorted_rows.py` says which it is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_codec.points import FLOAT64, INT64, TEXT, UINT64
from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.columns import STAMP, columns
from backhaul_spark.rollup.rows import SERIES, Texts
from backhaul_spark.rollup.sorted_rows import Rows

WIDTHS_NS = {"1m": 60_000_000_000, "1h": 3_600_000_000_000}

WINDOWS = columns(
    """
    width string, device string, node string, type string, key string, window_start timestamp,
    count bigint, min double, max double, mean double, sum double, first double, last double,
    nans bigint, texts bigint, first_text string, last_text string, first_time_ns bigint,
    last_time_ns bigint
    """
)
# By so much numbers are made smaller whose sum overflows: a power of two, which changes none of their bits.
SCALE = 2.0**-64
_TEXT = [("at", "i8"), ("len", "i4")]
# A window: what is not there is 0 in it. `number` is its place since 1970.
WINDOW = np.dtype(
    [
        *[("series", "i4"), ("number", "i8"), ("count", "i8"), ("nans", "i8"), ("texts", "i8")],
        *[(name, "f8") for name in ("min", "max", "mean", "sum", "first", "last")],
        *[("first_text", _TEXT), ("last_text", _TEXT)],
        *[("first_time_ns", "i8"), ("last_time_ns", "i8")],
    ]
)


class Counted:
    """The rows that count among some rows, and their roles.

    Args:
        repeat: which of them are no reading of their own (`repeats`).
    """

    def __init__(self, rows: Rows, repeat: Flags) -> None:
        self.rows = rows
        self.time_ns = np.ascontiguousarray(rows["time_ns"])
        self.value = np.ascontiguousarray(rows["value"])
        dtype = rows["dtype"]
        number = np.isin(dtype, (FLOAT64, INT64, UINT64)) & ~repeat
        self.nan = number & np.isnan(self.value)
        self.number = number & ~self.nan
        self.text = (dtype == TEXT) & ~repeat

    def part(self, start: int, end: int) -> Counted:
        """Return the part of the rows at the given places."""
        found = object.__new__(Counted)
        for name in ("rows", "time_ns", "value", "nan", "number", "text"):
            setattr(found, name, getattr(self, name)[start:end])
        return found

    def starts(self, width_ns: int) -> Ints:
        """Return the first row of each (series, window)."""
        series, window = self.rows["series"], np.floor_divide(self.time_ns, width_ns)
        begins = np.ones(len(window), dtype=bool)
        begins[1:] = (window[1:] != window[:-1]) | (series[1:] != series[:-1])
        return np.flatnonzero(begins)


def repeats(rows: Rows) -> Flags:
    """Find points that came on live (letter p) and are there already: in a frame (f), or on live.

    A program may hand a value over as state and as telemetry, and an older agent sends heads again
    without saying so. All are rows of points; in a window they are one reading. `rows` are in order, and of each stamp of
    a series all.
    """
    alone = np.ascontiguousarray(rows["alone"])
    repeat = np.zeros(len(rows), dtype=bool)
    if not alone.any():
        return repeat
    time_ns = np.ascontiguousarray(rows["time_ns"])
    near = np.flatnonzero(alone | np.isin(time_ns, time_ns[alone]))
    some = rows[near]
    says = some["says"]
    same = (says[:, 0], says[:, 1], some["dtype"], some["time_ns"], some["series"])
    # Of those that are the same the frame's first, and it counts.
    order = np.lexsort((alone[near], *same))
    again = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in same])
    later = near[order][1:]
    repeat[later[again & alone[later]]] = True
    return repeat


def sum_windows(counted: Counted, width_ns: int) -> NDArray[np.void]:
    """Return the windows (dtype WINDOW) of one width, those without anything too."""
    starts = counted.starts(width_ns)
    size = len(starts)
    found = np.zeros(size, WINDOW)
    group = np.zeros(len(counted.rows), dtype=np.int64)
    group[starts[1:]] = 1
    group = np.cumsum(group)
    found["series"] = counted.rows["series"][starts]
    found["number"] = np.floor_divide(counted.time_ns[starts], width_ns)
    found["nans"] = np.bincount(group[counted.nan], minlength=size)
    numbers = _Runs(group, counted.number)
    if numbers.count:
        at, value = numbers.groups, counted.value[numbers.rows]
        with np.errstate(all="ignore"):  # infinities sum to what IEEE says, not to a warning
            total = np.add.reduceat(value, numbers.starts)
            found["mean"][at] = total / numbers.sizes
        found["count"][at], found["sum"][at] = numbers.sizes, total
        found["min"][at] = np.minimum.reduceat(value, numbers.starts)
        found["max"][at] = np.maximum.reduceat(value, numbers.starts)
        if (over := overflown(found)).any():
            scaled = np.add.reduceat(value * SCALE, numbers.starts) / numbers.sizes / SCALE
            found["mean"][at] = np.where(over[at], scaled, found["mean"][at])
        found["first"][at] = counted.value[numbers.firsts]
        found["last"][at] = counted.value[numbers.lasts]
    texts = _Runs(group, counted.text)
    if texts.count:
        found["texts"][texts.groups] = texts.sizes
        for name, rows in (("first_text", texts.firsts), ("last_text", texts.lasts)):
            found[name]["at"][texts.groups] = counted.rows["text_at"][rows]
            found[name]["len"][texts.groups] = counted.rows["text_len"][rows]
    both = _Runs(group, counted.number | counted.text)
    found["first_time_ns"][both.groups] = counted.time_ns[both.firsts]
    found["last_time_ns"][both.groups] = counted.time_ns[both.lasts]
    return found


def overflown(found: NDArray[np.void]) -> Flags:
    """Return which windows have numbers whose sum no double holds, though each of them is finite.

    `found`: (windows,), dtype WINDOW; the result is (windows,) bool.
    """
    finite = np.isfinite(found["min"]) & np.isfinite(found["max"])
    return np.asarray(finite & ~np.isfinite(found["sum"]) & (found["count"] > 0))


class _Runs:
    """The selected rows, run by run of one group."""

    def __init__(self, group: Ints, selected: Flags) -> None:
        self.rows = np.flatnonzero(selected)
        groups = group[self.rows]
        begins = np.ones(len(groups), dtype=bool)
        begins[1:] = groups[1:] != groups[:-1]
        self.starts = np.flatnonzero(begins)
        self.count = len(self.starts)
        ends = np.append(self.starts[1:], len(groups))
        self.sizes = (ends - self.starts).astype(np.int64)
        self.groups = groups[self.starts]
        self.firsts = self.rows[self.starts]
        self.lasts = self.rows[ends - 1] if self.count else self.rows[:0]


def as_windows(found: NDArray[np.void], width: str, names: pa.Table, texts: Texts) -> pa.Table:
    """Return windows (dtype WINDOW, of one width) as a table, schema WINDOWS.

    `found` has the shape (windows,); windows in which nothing counts are left out.
    """
    found = found[(found["count"] > 0) | (found["nans"] > 0) | (found["texts"] > 0)]
    start_us = found["number"] * (WIDTHS_NS[width] // 1000)
    columns = {"width": pa.repeat(pa.scalar(width), len(found))}
    series = pa.array(found["series"])
    columns |= {name: names.column(name).take(series) for name in SERIES}
    columns["window_start"] = pa.array(start_us).cast(STAMP)
    for name in ("count", "nans", "texts"):
        columns[name] = pa.array(np.ascontiguousarray(found[name]))
    for name in ("min", "max", "mean", "sum", "first", "last"):
        columns[name] = pa.array(np.ascontiguousarray(found[name]), mask=found["count"] == 0)
    there = found["texts"] > 0
    index = pa.array(np.cumsum(there) - 1, mask=~there)  # most windows have none
    for name in ("first_text", "last_text"):
        known = [texts.get(*place) for place in found[name][there].tolist()]
        columns[name] = pa.array(known, pa.string()).take(index)
    nothing = (found["count"] == 0) & (found["texts"] == 0)
    for name in ("first_time_ns", "last_time_ns"):
        columns[name] = pa.array(np.ascontiguousarray(found[name]), mask=nothing)
    return pa.table([columns[name] for name in WINDOWS.names], schema=WINDOWS)
