"""Read the readings of points that belong into windows, a few at a time. Executor side, without Spark.

Arrow's own scanner reads ahead of whoever takes its batches: of rows that a file has by the million in a
few bytes that was half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_codec.kinds import FRAME, POINT
from backhaul_codec.points import FLOAT64, UINT64
from backhaul_spark.arrays import Floats, Ints
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.part_file import read_batches

LETTERS = pa.array([FRAME.letter, POINT.letter])
DTYPES = pa.array([1, 2, 3, 4], pa.int16())
_ASKED = ("letter", "dtype", "tombstone", "device", "time_ns", "ingest")


class Wanted(NamedTuple):
    """Which readings: after one ingest, up to another; at some times (ns, from and up to); of some devices."""

    after: int
    last: int
    times_ns: tuple[int, int] | None = None
    devices: pa.Array | None = None

    def group(self, group: pq.RowGroupMetaData) -> bool:
        """Say by its bounds whether a row group may hold some."""
        for at in range(group.num_columns):
            column = group.column(at)
            known = column.statistics
            if known is None or not known.has_min_max:
                continue
            name = column.path_in_schema
            if name == "ingest" and (known.max <= self.after or known.min > self.last):
                return False
            if name == "time_ns" and self.times_ns is not None:
                start, end = self.times_ns
                if known.max < start or known.min > end:
                    return False
        return True

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which rows are: none that is deleted, is no reading, or has no time one could believe.

        (Files of the date 1970-01-01 are not among those that are read.)
        """
        ingest, time_ns = batch.column("ingest"), batch.column("time_ns")
        found = pc.and_(pc.greater(ingest, self.after), pc.less_equal(ingest, self.last))
        found = pc.and_(found, _among(batch.column("letter"), LETTERS))
        found = pc.and_(found, pc.is_in(batch.column("dtype"), DTYPES))
        found = pc.and_(found, pc.equal(pc.bit_wise_and(batch.column("tombstone"), 1), 0))
        if self.times_ns is not None:
            start, end = self.times_ns
            within = pc.and_(pc.greater_equal(time_ns, start), pc.less_equal(time_ns, end))
            found = pc.and_(found, within)
        if self.devices is not None:
            found = pc.and_(found, _among(batch.column("device"), self.devices))
        return found


def readings(
    uri: str, paths: Iterable[str], columns: Iterable[str], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Yield those readings of some files of points; texts as dictionaries."""
    names = [*columns]
    asked = [*names, *(name for name in _ASKED if name not in names)]
    for path in paths:
        with open_input(uri, path) as source:
            for batch in read_batches(source, asked, wanted.group):
                rows = wanted.rows(batch)
                if pc.any(rows).as_py():
                    yield batch.filter(rows).select(names)


def numbers_of(batch: pa.RecordBatch) -> Floats:
    """Return the numbers of points as doubles, (rows,) float64; of a row without one anything."""
    dtype = batch.column("dtype").to_numpy()
    bits = pc.fill_null(batch.column("value_i64"), 0).to_numpy()
    floats = pc.fill_null(batch.column("value_f64"), 0.0).to_numpy()
    unsigned = np.where(dtype == UINT64, bits, 0).view(np.uint64).astype(np.float64)
    integers = np.where(dtype == UINT64, unsigned, bits.astype(np.float64))
    return np.where(dtype == FLOAT64, floats, integers)


def series_places(batch: pa.RecordBatch, series: Iterable[tuple[str, str, str]]) -> Ints:
    """Return of each row the place of its series (node, type, key) among some, -1 for others: (rows,) int64.

    Args:
        batch: names as dictionaries.
        series: each once.
    """
    found = np.full(batch.num_rows, -1)
    for place, names in enumerate(series):
        same = np.ones(batch.num_rows, bool)
        for name, text in zip(("node", "type", "key"), names, strict=True):
            equal = _among(batch.column(name), pa.array([text]))
            same &= equal.to_numpy(zero_copy_only=False)
        found[same] = place
    return found


def _among(column: pa.DictionaryArray, values: pa.Array) -> Any:
    """Return which rows have one of some values; each is looked up once a batch."""
    return pc.is_in(column.dictionary, values).take(column.indices)
