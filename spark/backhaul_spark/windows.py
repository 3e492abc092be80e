"""Sum points up by window: numpy over points sorted by series and time. No Spark in here.

The order of the rows decides every bit of a float sum, so it is part of the contract: within a
series by (time_ns, seq, index, epoch, lane). Then a window that is computed again, in another
batch or from scratch, comes out bit for bit the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.points import FLOAT64, INT64, TEXT, UINT64
from backhaul_spark.messages import STAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SERIES = ("device", "node", "type", "key")
ORDER = ("time_ns", "seq", "index", "epoch", "lane")
WIDTHS_NS = {"1m": 60_000_000_000, "1h": 3_600_000_000_000}

# What the kernel needs of a point, and gives for a window.
INPUT = (*SERIES, *ORDER, "letter", "dtype", "value_f64", "value_i64", "value_text")
WINDOWS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("width", *SERIES)),
        pa.field("window_start", STAMP),
        pa.field("count", pa.int64()),
        *(pa.field(name, pa.float64()) for name in ("min", "max", "mean", "sum", "first", "last")),
        pa.field("nans", pa.int64()),
        pa.field("texts", pa.int64()),
        pa.field("first_text", pa.string()),
        pa.field("last_text", pa.string()),
        pa.field("first_time_ns", pa.int64()),
        pa.field("last_time_ns", pa.int64()),
    ]
)


def in_order(table: pa.Table) -> pa.Table:
    """Return the rows sorted by series, then ORDER, without chunks."""
    table = table.combine_chunks()
    keys: list[NDArray[np.int64]] = []
    for name in SERIES + ORDER:
        column = table.column(name)
        if pa.types.is_string(column.type):
            encoded = column.combine_chunks().dictionary_encode()
            # By rank of the text, so that the order does not hang on which text came first.
            rank = np.argsort(np.argsort(np.asarray(encoded.dictionary.to_pylist(), dtype=object)))
            key = rank[encoded.indices.to_numpy()]
        else:
            key = column.to_numpy()
        if key.min() != key.max():
            keys.append(key)
    if not keys:
        return table
    return table.take(pa.array(np.lexsort(keys[::-1]))).combine_chunks()


def group_starts(table: pa.Table, width_ns: int) -> NDArray[np.int64]:
    """Return the first row of each (series, window) of a sorted table without chunks."""
    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    for name in SERIES:
        column = table.column(name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    window = np.floor_divide(table.column("time_ns").to_numpy(), width_ns)
    begins[1:] |= window[1:] != window[:-1]
    return np.flatnonzero(begins)


def sum_windows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield one batch a width for whole windows."""
    counted = _counted(table)
    for width, width_ns in WIDTHS_NS.items():
        starts = group_starts(table, width_ns)
        yield _sum(table, counted, starts, width, width_ns)


class _counted:
    """Which rows count, and as what."""

    def __init__(self, table: pa.Table) -> None:
        dtype = table.column("dtype").to_numpy()
        bits = pc.fill_null(table.column("value_i64"), 0).to_numpy()
        floats = pc.fill_null(table.column("value_f64"), 0.0).to_numpy()
        self.value = np.where(dtype == FLOAT64, floats, bits.astype(np.float64))
        unsigned = dtype == UINT64
        self.value[unsigned] = bits[unsigned].view(np.uint64).astype(np.float64)
        once = ~_repeats(table, np.where(dtype == FLOAT64, floats.view(np.int64), bits))
        number = np.isin(dtype, (FLOAT64, INT64, UINT64)) & once
        self.nan = number & np.isnan(self.value)
        self.number = number & ~self.nan
        self.text = (dtype == TEXT) & once


def _repeats(table: pa.Table, value: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Find points that came on live (letter p) and are there already: in a frame (f), or on live.

    A program may hand a value over as state and as telemetry, and an older agent sends heads again
    without saying so. All are rows of points; in a window they are one reading.

    Args:
        table: sorted, without chunks.
        value: the bits of each number.
    """
    alone = pc.equal(table.column("letter"), "p").to_numpy()
    repeat = np.zeros(len(alone), dtype=bool)
    if not alone.any():
        return repeat
    time_ns = table.column("time_ns").to_numpy()
    near = np.flatnonzero(alone | np.isin(time_ns, time_ns[alone]))
    text = table.column("value_text").combine_chunks().take(pa.array(near)).dictionary_encode()
    series = np.cumsum(np.isin(np.arange(len(alone)), group_starts(table, WIDTHS_NS["1h"])))
    same = (
        value[near],
        pc.fill_null(text.indices, -1).to_numpy(),
        table.column("dtype").to_numpy()[near],
        time_ns[near],
        series[near],
    )
    # Of those that are the same the frame's first, and it counts.
    order = np.lexsort((alone[near], *same))
    again = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in same])
    later = near[order][1:]
    repeat[later[again & alone[later]]] = True
    return repeat


def _sum(
    table: pa.Table, counted: _counted, starts: NDArray[np.int64], width: str, width_ns: int
) -> pa.RecordBatch:
    group = np.zeros(table.num_rows, dtype=np.int64)
    group[starts[1:]] = 1
    group = np.cumsum(group)
    size = len(starts)
    time_ns = table.column("time_ns").to_numpy()
    window_us = np.floor_divide(time_ns[starts], width_ns) * (width_ns // 1000)
    numbers, texts = _Runs(group, counted.number), _Runs(group, counted.text)
    any_run = _Runs(group, counted.number | counted.text)
    value = counted.value
    with np.errstate(all="ignore"):  # infinities sum to what IEEE says, not to a warning
        total = np.add.reduceat(value[numbers.rows], numbers.starts) if numbers.count else value[:0]
        mean = total / np.maximum(numbers.sizes, 1)
    first = table.take(pa.array(starts))
    text = table.column("value_text")
    columns = [
        pa.repeat(pa.scalar(width), size),
        *(first.column(name).combine_chunks() for name in SERIES),
        pa.array(window_us).cast(STAMP),
        pa.array(numbers.spread(numbers.sizes, size, 0)),
        numbers.column(np.minimum.reduceat, value, size),
        numbers.column(np.maximum.reduceat, value, size),
        numbers.filled(mean, size),
        numbers.filled(total, size),
        numbers.filled(value[numbers.firsts], size),
        numbers.filled(value[numbers.lasts], size),
        pa.array(np.bincount(group[counted.nan], minlength=size).astype(np.int64)),
        pa.array(texts.spread(texts.sizes, size, 0)),
        texts.taken(text, texts.firsts, size),
        texts.taken(text, texts.lasts, size),
        any_run.filled(time_ns[any_run.firsts], size),
        any_run.filled(time_ns[any_run.lasts], size),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=WINDOWS)
    counts = [batch.column(name).to_numpy() for name in ("count", "nans", "texts")]
    something = np.sum(counts, axis=0) > 0
    return batch if something.all() else batch.filter(pa.array(something))


class _Runs:
    """The selected rows, run by run of one group."""

    def __init__(self, group: NDArray[np.int64], selected: NDArray[np.bool_]) -> None:
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

    def spread(self, values: NDArray[np.int64], size: int, missing: int) -> NDArray[np.int64]:
        """Put a value a run at its group; other groups get `missing`."""
        result = np.full(size, missing, dtype=values.dtype)
        result[self.groups] = values
        return result

    def filled(self, values: NDArray[np.generic], size: int) -> pa.Array:
        """Put a value a run at its group; other groups get null."""
        result = np.zeros(size, dtype=values.dtype)
        result[self.groups] = values
        empty = np.ones(size, dtype=bool)
        empty[self.groups] = False
        return pa.array(result, mask=empty)

    def column(self, reduceat: object, values: NDArray[np.float64], size: int) -> pa.Array:
        """Reduce each run to its group's value."""
        picked = values[self.rows]
        reduced = reduceat(picked, self.starts) if self.count else picked  # type: ignore[operator]
        return self.filled(reduced, size)

    def taken(self, column: pa.ChunkedArray, rows: NDArray[np.int64], size: int) -> pa.Array:
        """Take one row a run from an Arrow column."""
        index = np.zeros(size, dtype=np.int64)
        index[self.groups] = rows
        empty = np.ones(size, dtype=bool)
        empty[self.groups] = False
        taken = column.take(pa.array(index, mask=empty)).cast(pa.string())
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
