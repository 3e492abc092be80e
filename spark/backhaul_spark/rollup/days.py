"""Sum hours up to days. From hours and not from points: a day of points need not be read again.

Hours are added in the order of time, so that a day has the same bits however often and in whichever
portions its hours came. The sum of a day may differ in its last bits from that of all its points.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.arrays import Ints
from backhaul_spark.rollup.rows import SERIES
from backhaul_spark.rollup.windows import WINDOWS

_DAY_US = 86_400_000_000


def sum_days(hours: pa.Table) -> pa.Table:
    """Return the windows of width 1d that whole days of hour windows give (schema WINDOWS)."""
    order = [*SERIES, "window_start"]
    hours = hours.select(WINDOWS.names).sort_by([(name, "ascending") for name in order])
    hours = hours.combine_chunks()
    if not hours.num_rows:
        return WINDOWS.empty_table()
    day = hours.column("window_start").cast(pa.int64()).to_numpy() // _DAY_US
    begins = np.ones(hours.num_rows, dtype=bool)
    begins[1:] = day[1:] != day[:-1]
    for name in SERIES:
        column = hours.column(name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    starts = np.flatnonzero(begins)
    rows = _Hours(hours, np.cumsum(begins) - 1, starts)
    count, nans, texts = (rows.total(name) for name in ("count", "nans", "texts"))
    with np.errstate(all="ignore"):  # infinities sum to what IEEE says, not to a warning
        total = rows.folded("sum", np.add)
        mean = pc.divide(total, pa.array(np.where(count, count, 1).astype(np.float64)))
        low, high = rows.folded("min", np.minimum), rows.folded("max", np.maximum)
        finite = pc.and_(pc.is_finite(low), pc.is_finite(high))
        over = pc.and_(finite, pc.invert(pc.is_finite(total)))
        mean = pc.if_else(over, rows.weighted("mean", "count"), mean)
    columns = {name: hours.column(name).take(pa.array(starts)) for name in SERIES}
    columns |= {
        "width": pa.repeat(pa.scalar("1d"), len(starts)),
        "window_start": pa.array(day[starts] * _DAY_US).cast(WINDOWS.field("window_start").type),
        "count": pa.array(count),
        "min": low,
        "max": high,
        "mean": mean,
        "sum": total,
        "first": rows.end("first", "count", 0),
        "last": rows.end("last", "count", -1),
        "nans": pa.array(nans),
        "texts": pa.array(texts),
        "first_text": rows.end("first_text", "texts", 0),
        "last_text": rows.end("last_text", "texts", -1),
        "first_time_ns": rows.end("first_time_ns", "first_time_ns", 0),
        "last_time_ns": rows.end("last_time_ns", "last_time_ns", -1),
    }
    return pa.table([columns[name] for name in WINDOWS.names], schema=WINDOWS)


class _Hours:
    """Hour windows in order, and the day each belongs to."""

    def __init__(self, rows: pa.Table, group: Ints, starts: Ints) -> None:
        self._rows, self._group, self._starts = rows, group, starts

    def total(self, name: str) -> Ints:
        """Add up a column of whole numbers by day."""
        values = self._rows.column(name).to_numpy()
        return np.add.reduceat(values, self._starts)

    def weighted(self, name: str, weight: str) -> pa.Array:
        """Return the mean of a column by day, each hour with its weight: where sums are beyond a double."""
        weights = self._rows.column(weight).to_numpy()
        whole = np.maximum(np.add.reduceat(weights, self._starts), 1)
        values = pc.fill_null(self._rows.column(name), 0.0).to_numpy()
        return pa.array(np.add.reduceat(values * (weights / whole[self._group]), self._starts))

    def folded(self, name: str, fold: np.ufunc) -> pa.Array:
        """Fold a column's values by day, one hour after the other; null for a day without any."""
        column = self._rows.column(name).combine_chunks()
        there = np.flatnonzero(column.is_valid())
        result = np.zeros(len(self._starts))
        empty = np.ones(len(self._starts), dtype=bool)
        values = column.drop_null().to_numpy()
        # Hour by hour, at most 24 times: reduceat may add pairwise, and that is numpy's business.
        position = _positions(self._group[there])
        for step in range(int(position.max(initial=-1)) + 1):
            at = position == step
            days = self._group[there[at]]
            result[days] = fold(result[days], values[at]) if step else values[at]
            empty[days] = False
        return pa.array(result, mask=empty)

    def end(self, name: str, counts: str, which: int) -> pa.Array:
        """Take a column of a day's first (0) or last (-1) hour in which `counts` is not 0."""
        counted = pc.fill_null(self._rows.column(counts), 0).to_numpy()
        there = np.flatnonzero(counted)
        if which:
            there = there[::-1]
        days, first = np.unique(self._group[there], return_index=True)
        index = np.zeros(len(self._starts), dtype=np.int64)
        empty = np.ones(len(self._starts), dtype=bool)
        index[days] = there[first]
        empty[days] = False
        taken = self._rows.column(name).take(pa.array(index, mask=empty))
        return taken.combine_chunks()


def _positions(group: Ints) -> Ints:
    """Return for each row its place in its run of equal groups, from 0."""
    begins = np.ones(len(group), dtype=bool)
    begins[1:] = group[1:] != group[:-1]
    starts = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    return np.arange(len(group)) - starts[run] if len(group) else group
