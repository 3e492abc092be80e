"""Sort any number of rows in bounded memory: the excess lies sorted in a file and is merged.

The order of the rows decides every bit of a float sum, so it is part of the contract: within a
series by (time_ns, seq, index, epoch, lane). Then a window that is computed again, in another
batch or from scratch, comes out bit for bit the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Ints
from backhaul_spark.rollup.rows import ROW, scratch_file

Rows: TypeAlias = NDArray[np.void]

ORDER = ("series", "time_ns", "seq", "index", "epoch")
# Rows that are sorted in memory, 74 bytes each.
HOLD_ROWS = 1 << 20
# Rows of all sorted runs together that are in memory while they are merged.
MERGE_ROWS = 1 << 18
# Of each run at least so many.
MERGE_ROWS_MIN = 1 << 10
# Rows that are handed over at a time.
PIECE_ROWS = 1 << 17


class SortedRows:
    """Take rows in, and give them out in order.

    Args:
        lanes: the names of lanes that rows have the places of; it may grow while rows come in.
    """

    def __init__(self, lanes: Sequence[str]) -> None:
        self._lanes = lanes
        self._held = np.empty(HOLD_ROWS, ROW)  # takes memory as it is filled
        self._count = 0
        self._runs: list[_Run] = []
        self._file: IO[bytes] | None = None

    def add(self, rows: Rows) -> None:
        """Take rows in."""
        while len(rows):
            taken = rows[: len(self._held) - self._count]
            self._held[self._count : self._count + len(taken)] = taken
            self._count += len(taken)
            rows = rows[len(taken) :]
            if self._count == len(self._held):
                self._spill()

    def pieces(self) -> Iterator[Rows]:
        """Yield all rows in order, once."""
        if not self._runs:
            yield from self._sorted()
            return
        if self._count:
            self._spill()
        self._held = np.empty(0, ROW)
        rank = _ranks(self._lanes)
        yield from _pieces(
            _merged(self._runs, rank, max(MERGE_ROWS_MIN, MERGE_ROWS // len(self._runs)))
        )

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()

    def _sorted(self) -> Iterator[Rows]:
        rows = self._held[: self._count]
        order = _order(rows, _ranks(self._lanes))
        for at in range(0, len(rows), PIECE_ROWS):
            yield rows[order[at : at + PIECE_ROWS]]

    def _spill(self) -> None:
        self._file = self._file or scratch_file()
        start = self._file.seek(0, 2)
        for piece in self._sorted():
            self._file.write(piece.data)
        self._runs.append(_Run(self._file, start, self._count))
        self._count = 0


class _Run:
    """Sorted rows in a file, and those of them in memory."""

    def __init__(self, file: IO[bytes], at: int, left: int) -> None:
        self._file, self._at, self._left = file, at, left
        self.rows = np.empty(0, ROW)

    @property
    def more(self) -> bool:
        """Whether rows are left that are not in memory."""
        return self._left > 0

    def fill(self, count: int) -> None:
        """Read rows if none is in memory."""
        if not len(self.rows) and self._left:
            self.rows = read_rows(self._file, self._at, min(count, self._left))
            self._at += self.rows.nbytes
            self._left -= len(self.rows)

    def take(self, count: int) -> Rows:
        """Take away the first rows in memory."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken


def read_rows(file: IO[bytes], at: int, count: int) -> Rows:
    """Return so many rows of a file from the byte `at` on, or those up to its end."""
    file.seek(at)
    return np.frombuffer(file.read(count * ROW.itemsize), ROW)


def _merged(runs: list[_Run], rank: Ints, count: int) -> Iterator[Rows]:
    def key(row: np.void) -> tuple[int, ...]:
        return (*(int(row[name]) for name in ORDER), int(rank[row["lane"]]))

    while True:
        for run in runs:
            run.fill(count)
        bounds = [(key(run.rows[-1]), at) for at, run in enumerate(runs) if run.more]
        if not bounds:
            break
        # What is not in memory yet comes after all that is up to here.
        bound, last = min(bounds)
        taken = []
        for at, run in enumerate(runs):
            bisect = bisect_right if at <= last else bisect_left
            taken.append(run.take(bisect(run.rows, bound, key=key)))
        yield _in_order(taken, rank)
    yield _in_order([run.rows for run in runs], rank)


def _in_order(parts: list[Rows], rank: Ints) -> Rows:
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([np.empty(0, ROW), *parts])
    return rows[_order(rows, rank)]


def _order(rows: Rows, rank: Ints) -> Ints:
    keys = []
    for name in ORDER:
        column = np.ascontiguousarray(rows[name])
        if len(column) and column.min() != column.max():
            keys.append(column)
    if len(rank) > 1:
        keys.append(rank[rows["lane"]])
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))


def _ranks(lanes: Sequence[str]) -> Ints:
    """Return for each lane its place in the order of names, independent of arrival."""
    return np.argsort(np.argsort(np.asarray(lanes, dtype=object)))


def _pieces(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Yield the same rows, about PIECE_ROWS at a time."""
    held: list[Rows] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= PIECE_ROWS:
            yield np.concatenate(held)
            held, count = [], 0
    if held:
        yield np.concatenate(held)
