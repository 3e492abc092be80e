"""Put rows of points in the order of signal, device and time, so that a reader of one series skips the others.

The statistics of a row group say which signals, devices and times it has. Points come from all series at once, so a row
group of theirs has nearly all; in this order it has one series, or a few. The signal comes first: a question about a
fleet reads one signal of all devices, and one about a single series finds it in one place either way. Any number of rows is sorted in
bounded memory: sorted runs lie in files without names and are merged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import IO, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.arrays import Ints
from backhaul_spark.tables.part_file import row_groups

NAMES = ("node", "type", "key", "device")
TIME = "time_ns"
# What grows from row to row then.
ASCENDING = ("time", "time_ns", "stored_at")
# So many rows are sorted in memory: each of them is there four times for a moment.
RUN_ROWS = 1 << 16
# At most twice so many rows of each run are in memory while runs are merged, with their texts.
BLOCK_ROWS = 1 << 10
TEXT_BYTES_MAX = 64 << 20
# And all names of devices, nodes, types and keys, with the place of each.
NAMES_MAX = 1 << 18
_SERIES_MAX = 1 << 62


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows by node, type, key, device and time, in tables of a row group each.

    Rows that are alike in those keep their order. Where the texts of two blocks of each run come to more than
    TEXT_BYTES_MAX, or names are more than NAMES_MAX, the rows after that stay as they come.

    Args:
        batches: rows of points, texts as dictionaries (`part_file.read_batches`).
    """
    with ExitStack() as files:
        runs: list[_Run] = []
        names: dict[str, set[str | None]] = {name: set() for name in NAMES}
        text_bytes = 0
        tables = row_groups(batches, RUN_ROWS)
        for table in tables:
            for name, known in names.items():
                known.update(_column(table, name).dictionary.to_pylist())
            if sum(map(len, names.values())) <= NAMES_MAX:
                run = _Run(files.enter_context(tempfile.TemporaryFile()), _sorted(table))
                text_bytes += 2 * run.text_bytes
                if text_bytes <= TEXT_BYTES_MAX:
                    runs.append(run)
                    continue
            names.clear()
            yield from (each.whole() for each in runs)
            yield table
            yield from tables
            return
        orders = [_places(names[name]) for name in NAMES]
        if prod(len(order) + 1 for order in orders) > _SERIES_MAX:
            yield from (run.whole() for run in runs)
        else:
            yield from row_groups(_merged(runs, orders))


class _Run:
    """Sorted rows in a file, and those of them in memory.

    `rows`: these, with `series` and `time_ns`, their keys; `text_bytes`: the most that their texts take.
    """

    def __init__(self, file: IO[bytes], table: pa.Table) -> None:
        self._file, self._left = file, table.num_rows
        self.text_bytes = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(pa.PythonFile(file, "w"), table.schema, options=options) as writer:
            for batch in table.to_batches(BLOCK_ROWS):
                block = _with_own_texts(batch)
                self.text_bytes = max(self.text_bytes, _text_bytes(block))
                writer.write_batch(block)
        self._reader: Any = None
        # Of its own: a slice would keep the whole in memory.
        self.rows: pa.Table = table.schema.empty_table()
        self.series = self.time_ns = np.empty(0, np.int64)

    def whole(self) -> pa.Table:
        """Return all rows."""
        self._file.seek(0)
        rows = pa.ipc.open_stream(pa.PythonFile(self._file, "r")).read_all()
        return rows.unify_dictionaries().combine_chunks()

    @property
    def more(self) -> bool:
        """Whether rows are left that are not in memory."""
        return bool(self._left > 0)

    def key(self, at: int) -> tuple[int, int]:
        """Return the key of a row in memory."""
        return int(self.series[at]), int(self.time_ns[at])

    def fill(self, orders: Sequence[Mapping[str | None, int]], least: int) -> None:
        """Read blocks until at least so many rows are in memory, or all that there are."""
        while self.rows.num_rows < least and self._left:
            if self._reader is None:
                self._file.seek(0)
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._file, "r"))
            block = pa.Table.from_batches([self._reader.read_next_batch()])
            self._left -= block.num_rows
            series = np.zeros(block.num_rows, np.int64)
            for name, order in zip(NAMES, orders, strict=True):
                series = series * (len(order) + 1) + _ranks(block, name, order)
            self.rows = pa.concat_tables([self.rows, block]) if self.rows.num_rows else block
            self.series = np.concatenate([self.series, series])
            self.time_ns = np.concatenate([self.time_ns, block.column(TIME).to_numpy()])

    def take(self, count: int) -> tuple[pa.Table, Ints, Ints]:
        """Take away the first rows in memory, with their keys."""
        taken = self.rows.slice(0, count), self.series[:count], self.time_ns[:count]
        self.rows = self.rows.slice(count)
        self.series, self.time_ns = self.series[count:], self.time_ns[count:]
        return taken

    def up_to(self, bound: tuple[int, int], *, included: bool) -> int:
        """Return how many rows in memory lie before a key, or at it."""
        low, high = (
            int(np.searchsorted(self.series, bound[0], side)) for side in ("left", "right")
        )
        side: Any = "right" if included else "left"
        return low + int(np.searchsorted(self.time_ns[low:high], bound[1], side))


def _merged(
    runs: list[_Run], orders: Sequence[Mapping[str | None, int]]
) -> Iterator[pa.RecordBatch]:
    # All runs have come as far as one key: so many rows further each is at much the same again, and a step takes from all
    # runs as much as is sorted in memory. As far as the shortest block goes would be a few rows of each of many runs.
    step = max(1, min(BLOCK_ROWS, RUN_ROWS // max(1, len(runs))))
    while True:
        for run in runs:
            run.fill(orders, step)
        bounds = [
            (run.key(step - 1), at)
            for at, run in enumerate(runs)
            if run.more or len(run.series) > step
        ]
        if not bounds:
            break
        # What is not in memory yet comes after all that is up to here.
        bound, last = min(bounds)
        parts = [run.take(run.up_to(bound, included=at <= last)) for at, run in enumerate(runs)]
        yield from _joined(parts)
    yield from _joined([run.take(run.rows.num_rows) for run in runs])


def _joined(parts: list[tuple[pa.Table, Ints, Ints]]) -> list[pa.RecordBatch]:
    parts = [part for part in parts if part[0].num_rows]
    if not parts:
        return []
    rows = pa.concat_tables([table for table, _, _ in parts]).unify_dictionaries()
    series, time_ns = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
    batches: list[pa.RecordBatch] = _taken(rows, np.lexsort((time_ns, series))).to_batches()
    return batches


def _sorted(table: pa.Table) -> pa.Table:
    table = table.combine_chunks()
    keys: list[Ints] = [table.column(TIME).to_numpy()]
    for name in reversed(NAMES):
        order = _places(_column(table, name).dictionary.to_pylist())
        keys.append(_ranks(table, name, order))
    return _taken(table, np.lexsort(keys))


def _taken(table: pa.Table, order: NDArray[np.intp]) -> pa.Table:
    return table.combine_chunks().take(pa.array(order)).combine_chunks()


def _places(names: Iterable[str | None]) -> dict[str | None, int]:
    """Return each name's place in the order of names, from 1; of no name none."""
    return {name: at for at, name in enumerate(sorted(n for n in names if n is not None), 1)}


def _ranks(table: pa.Table, name: str, order: Mapping[str | None, int]) -> Ints:
    column = _column(table, name)
    ranks = np.array([order.get(each, 0) for each in column.dictionary.to_pylist()] + [0], np.int64)
    found: Ints = ranks[column.indices.fill_null(len(ranks) - 1).to_numpy()]
    return found


def _column(table: pa.Table, name: str) -> pa.DictionaryArray:
    # The chunks of a table of row_groups share one dictionary.
    return table.column(name).chunk(0)


def _with_own_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose dictionaries hold no more texts than it has rows: else a block had those of its run."""
    columns = []
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray) and len(column.dictionary) > batch.num_rows:
            used = pc.unique(column.indices.drop_null())
            places = pc.index_in(column.indices, value_set=used)
            column = pa.DictionaryArray.from_arrays(places, column.dictionary.take(used))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _text_bytes(batch: pa.RecordBatch) -> int:
    return sum(c.dictionary.nbytes for c in batch.columns if isinstance(c, pa.DictionaryArray))
