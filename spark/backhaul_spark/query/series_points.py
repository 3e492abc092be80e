"""Read one series out of the files of points: of each row group the columns that its bounds leave open, and no more.

A question to Arrow's scanner reads every column that it filters by, row by row. In files that lie by series
(tables/by_series.py) the bounds of a row group answer most of that: all its rows are of this device, none is
deleted, none is a text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.tables.delta import table_uri
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.schemas import POINTS_TABLE

TIMELESS_DAY = date(1970, 1, 1)
"""The partition of points without a believable time."""
VALUES = ("time_ns", "letter", "dtype", "value_f64", "value_i64", "value_text")
PLACES = ("epoch", "seq", "index")
"""With those of readings that have one time it is told which came first."""
# Files that are read at a time: on an object store the most of a read is waiting.
_FILES_AT_ONCE = min(8, 2 * (os.cpu_count() or 1))
_NUMBER_OR_TEXT = (1, 4)
_INT64 = np.iinfo(np.int64)
File = Mapping[str, Any]
# Columns of which a whole row group may have one value.
_SAME = ("letter", "dtype", "epoch")
_TYPES = {name: POINTS_TABLE.schema.field(name).type for name in (*VALUES, *PLACES)}


@dataclass(frozen=True, slots=True)
class Asked:
    """Which readings of a series.

    Attributes:
        names: device, node, type, key.
        days: first and last partition, both included.
        from_us, to_us: µs since 1970, the end not included; None: whenever.
        known_us: ingested then or before; None: whenever.
        deleted: those that were deleted, too.
    """

    names: tuple[str, str, str, str]
    days: tuple[date, date]
    from_us: int | None = None
    to_us: int | None = None
    known_us: int | None = None
    deleted: bool = False

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Return by column of whole numbers the least and the greatest value that is asked for."""
        found = {"dtype": _NUMBER_OR_TEXT}
        if self.from_us is not None or self.to_us is not None:
            low = _INT64.min if self.from_us is None else self.from_us * 1000
            high = _INT64.max if self.to_us is None else self.to_us * 1000 - 1
            found["time_ns"] = max(low, _INT64.min), min(high, _INT64.max)
        if self.known_us is not None:
            found["ingested_at"] = _INT64.min, self.known_us
        return found


class SeriesPoints:
    """The committed files of a points table as loaded, opened for questions about one series."""

    def __init__(self, root: str, points: DeltaTable) -> None:
        self._uri = table_uri(root, POINTS_TABLE.name)
        files = pa.table(points.get_add_actions(flatten=True))
        bounds = [name for name in _BOUNDS if name in files.column_names]
        self._files = files.select(["path", "partition.date", *bounds]).to_pylist()

    def rows(self, asked: Asked, columns: tuple[str, ...] = VALUES) -> pa.Table:
        """Return these columns of the readings, as they lie in the files.

        Raises:
            OSError, pa.ArrowException: a file cannot be read.
        """
        files = [file for file in self._files if _may_hold(file, asked)]
        return self._read(files, asked, columns)

    def count(self, asked: Asked) -> int:
        """Return how many there are. Raises: as `rows`."""
        return int(self.rows(asked, ("dtype",)).num_rows)

    def extent_us(self, asked: Asked) -> tuple[int, int] | None:
        """Return the first and the last time, µs since 1970; None where there are none. Raises: as `rows`."""
        files = [file for file in self._files if _may_hold(file, asked)]
        first = last = None
        # From either end on, as far as a file may begin before what is known, or end after it.
        for some in _batches(sorted(files, key=_begin_ns)):
            if first is not None and _begin_ns(some[0]) >= first:
                break
            times = self._read(some, asked, ("time_ns",)).column("time_ns")
            if len(times):
                first = min(_INT64.max if first is None else first, pc.min(times).as_py())
        for some in _batches(sorted(files, key=_end_ns, reverse=True)):
            if first is None or (last is not None and _end_ns(some[0]) <= last):
                break
            times = self._read(some, asked, ("time_ns",)).column("time_ns")
            if len(times):
                last = max(_INT64.min if last is None else last, pc.max(times).as_py())
        return None if first is None or last is None else (first // 1000, last // 1000)

    def _read(self, files: Sequence[File], asked: Asked, columns: tuple[str, ...]) -> pa.Table:
        paths = sorted(unquote(file["path"]) for file in files)
        schema = pa.schema([(name, _TYPES[name]) for name in columns])
        if not paths:
            return schema.empty_table()
        with ThreadPoolExecutor(min(_FILES_AT_ONCE, len(paths))) as readers:
            parts = readers.map(lambda path: self._of_file(path, asked, columns), paths)
            return pa.concat_tables(
                [schema.empty_table(), *(each for one in parts for each in one)]
            )

    def _of_file(self, path: str, asked: Asked, columns: tuple[str, ...]) -> list[pa.Table]:
        found = []
        with open_input(self._uri, path) as source:
            file = pq.ParquetFile(source, read_dictionary=_TEXTS, pre_buffer=True)
            for at in range(file.num_row_groups):
                part = _of_group(file, at, asked, columns)
                if part is not None and part.num_rows:
                    found.append(part)
        return found


_NAMES = ("device", "node", "type", "key")
_TEXTS = [*_NAMES, "letter", "value_text"]  # each text once, whatever rows have it
_BOUNDS = ("min.device", "max.device", "min.time_ns", "max.time_ns")


def _begin_ns(file: File) -> int:
    known = file.get("min.time_ns")
    return _INT64.min if known is None else int(known)


def _end_ns(file: File) -> int:
    known = file.get("max.time_ns")
    return _INT64.max if known is None else int(known)


def _batches(files: Sequence[File]) -> Iterator[Sequence[File]]:
    for at in range(0, len(files), _FILES_AT_ONCE):
        yield files[at : at + _FILES_AT_ONCE]


def _may_hold(file: File, asked: Asked) -> bool:
    if not asked.days[0] <= file["partition.date"] <= asked.days[1]:
        return False
    device = asked.names[0]
    if (file.get("min.device") or "") > device or device > (file.get("max.device") or device):
        return False
    low, high = asked.ranges().get("time_ns", (_INT64.min, _INT64.max))
    return _begin_ns(file) <= high and _end_ns(file) >= low


class _Bounds:
    """The bounds of a row group's columns by the footer; one that is not there is None."""

    def __init__(self, group: pq.RowGroupMetaData) -> None:
        self._rows = group.num_rows
        self._columns = {}
        for at in range(group.num_columns):
            column = group.column(at)
            self._columns[column.path_in_schema] = column.statistics

    def of(self, name: str) -> tuple[Any, Any] | None:
        known = self._columns[name]
        if known is None or not known.has_min_max:
            return None
        return known.min_raw, known.max_raw

    def only(self, name: str) -> pa.Scalar | None:
        """Return the value that every row has in a column, None where they differ or nobody knows."""
        if self.empty(name):
            return pa.scalar(None, _TYPES[name])
        known = self.of(name)
        if name not in _SAME or known is None or known[0] != known[1] or not self.full(name):
            return None
        value = known[0]
        return pa.scalar(value.decode() if isinstance(value, bytes) else value, _TYPES[name])

    def full(self, name: str) -> bool:
        known = self._columns[name]
        return known is not None and bool(known.has_null_count) and not known.null_count

    def empty(self, name: str) -> bool:
        known = self._columns[name]
        return known is not None and bool(known.has_null_count) and known.null_count == self._rows


def _of_group(
    file: pq.ParquetFile, at: int, asked: Asked, columns: tuple[str, ...]
) -> pa.Table | None:
    """Return the rows of a row group, None where its bounds say that there are none."""
    group = file.metadata.row_group(at)
    bounds = _Bounds(group)
    open_: dict[str, Any] = {}
    for name, text in zip(_NAMES, asked.names, strict=True):
        value, known = text.encode(), bounds.of(name)
        if known is not None and not known[0] <= value <= known[1]:
            return None
        if known != (value, value) or not bounds.full(name):
            open_[name] = text
    for name, (low, high) in asked.ranges().items():
        known = bounds.of(name)
        if known is not None and (known[0] > high or known[1] < low):
            return None
        if known is None or known[0] < low or known[1] > high or not bounds.full(name):
            open_[name] = low, high
    if not asked.deleted:
        known = bounds.of("tombstone")
        if known is None or known[0] != known[1] or known[0] & 1 or not bounds.full("tombstone"):
            open_["tombstone"] = None
    return _values(file, at, bounds, columns, _mask(file, at, open_) if open_ else None)


def _mask(file: pq.ParquetFile, at: int, open_: Mapping[str, Any]) -> pa.Array:
    """Return which rows of a row group are asked for, by the columns that its bounds left open."""
    read = file.read_row_group(at, columns=list(open_))
    found: pa.Array | None = None
    for name, value in open_.items():
        column = read.column(name).combine_chunks()
        if isinstance(value, str):
            # Each name is compared once, and not in every row.
            names = column.dictionary
            each = pc.equal(names, pa.scalar(value, names.type)).take(column.indices)
        elif value is None:
            each = pc.equal(pc.bit_wise_and(column, 1), 0)
        else:
            numbers = column.cast(pa.int64())
            each = pc.and_(pc.greater_equal(numbers, value[0]), pc.less_equal(numbers, value[1]))
        found = each if found is None else pc.and_(found, each)
    return found


def _values(
    file: pq.ParquetFile, at: int, bounds: _Bounds, columns: Sequence[str], mask: pa.Array | None
) -> pa.Table:
    """Return columns of the rows of a row group; those of which its bounds say all are not read."""
    rows = file.metadata.row_group(at).num_rows if mask is None else mask.true_count
    known = {name: scalar for name in columns if (scalar := bounds.only(name)) is not None}
    wanted = [name for name in columns if name not in known] if rows else []
    read = file.read_row_group(at, columns=wanted) if wanted else None
    if read is not None and mask is not None:
        read = read.filter(mask)
    found = []
    for name in columns:
        if read is None or name in known:
            found.append(pa.repeat(known.get(name, pa.scalar(None, _TYPES[name])), rows))
        else:
            found.append(read.column(name).cast(_TYPES[name]))
    return pa.table(found, names=list(columns))
