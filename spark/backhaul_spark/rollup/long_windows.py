"""Sum rows up of which an hour of one series, or one stamp, may be more than fits into memory.

Bit for bit as `rollup/windows.py` does it: a long window's numbers lie in a file, and are added in the very
order in which numpy adds them when it has them in memory. Only where 0.0 and -0.0 are both the least, or
the greatest, of a window numpy takes either, and a long window the one that is less, or greater, by sign.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.rollup.rows import ROW, scratch_file
from backhaul_spark.rollup.sorted_rows import PIECE_ROWS, Rows, read_rows
from backhaul_spark.rollup.windows import (
    SCALE,
    WIDTHS_NS,
    WINDOW,
    Counted,
    overflown,
    repeats,
    sum_windows,
)

Group: TypeAlias = "Rows | Long"

# Rows of one hour or one stamp that are summed up in memory; beyond, piece by piece.
GROUP_ROWS = 1 << 18
# Numbers that numpy adds at a time; a power of two of at least 128.
ADDED = 1 << 16
# Readings of a long stamp of which it is known at a time whether they stand there twice.
TOLD_APART = 1 << 18


def windows_of(pieces: Iterable[Rows]) -> Iterator[tuple[str, NDArray[np.void]]]:
    """Yield width and windows (dtype WINDOW) of rows in order, however they are cut into pieces."""
    for hours in grouped(pieces, _hour):
        if isinstance(hours, Long):
            yield from _long_hour(hours)
            continue
        counted = Counted(hours, repeats(hours))
        for width, width_ns in WIDTHS_NS.items():
            yield width, sum_windows(counted, width_ns)


def _hour(rows: Rows) -> Ints:
    found: Ints = np.floor_divide(rows["time_ns"], WIDTHS_NS["1h"])
    return found


def _stamp(rows: Rows) -> Ints:
    return np.ascontiguousarray(rows["time_ns"])


class Long:
    """The pieces of one group, to be gone through once."""

    def __init__(self, first: Rows, pieces: Iterator[Rows], of: Callable[[Rows], object]) -> None:
        self._first, self._pieces, self._of = first, pieces, of
        self.after = first[:0]

    def __iter__(self) -> Iterator[Rows]:
        yield self._first
        for piece in self._pieces:
            other = _starts(np.concatenate([self._first[:1], piece]), self._of)
            if len(other):
                yield piece[: other[0] - 1]
                self.after = piece[other[0] - 1 :]
                return
            yield piece


def grouped(pieces: Iterable[Rows], of: Callable[[Rows], object]) -> Iterator[Group]:
    """Yield whole groups, some together, and one that has more than GROUP_ROWS as a Long.

    Args:
        pieces: rows in order.
        of: returns what tells groups of one series apart, in order.
    """
    pieces = iter(pieces)
    rest = np.empty(0, ROW)
    for piece in pieces:
        rows = np.concatenate([rest, piece]) if len(rest) else piece
        starts = _starts(rows, of)
        at = int(starts[-1]) if len(starts) else 0
        yield from _by_size(rows[:at], starts, of)
        rest = rows[at:]
        if len(rest) > GROUP_ROWS:
            long = Long(rest, pieces, of)
            yield long
            rest = long.after
    if len(rest):
        yield rest


def _by_size(rows: Rows, starts: Ints, of: Callable[[Rows], object]) -> Iterator[Group]:
    """Yield whole groups; a long one as such here too, so that it is no matter how pieces are cut."""
    edges = np.append(0, starts)
    done = 0
    for at in np.flatnonzero(np.diff(edges) > GROUP_ROWS):
        start, end = edges[at], edges[at + 1]
        if start > done:
            yield rows[done:start]
        yield Long(rows[start:end], iter(()), of)
        done = end
    if len(rows) > done:
        yield rows[done:]


def _starts(rows: Rows, of: Callable[[Rows], object]) -> Ints:
    """Return the first rows of groups, without that of the first."""
    series, number = rows["series"], np.asarray(of(rows))
    return np.flatnonzero((series[1:] != series[:-1]) | (number[1:] != number[:-1])) + 1


def _long_hour(pieces: Iterable[Rows]) -> Iterator[tuple[str, NDArray[np.void]]]:
    with scratch_file() as numbers:
        hour, minute = _Open("1h", numbers), _Open("1m", numbers)
        for counted in counted_of(pieces):
            starts = counted.starts(WIDTHS_NS["1m"])
            for start, end in zip(starts, [*starts[1:], len(counted.rows)], strict=True):
                number = int(counted.time_ns[start]) // WIDTHS_NS["1m"]
                if minute.number not in (None, number):
                    yield "1m", minute.window()
                    minute = _Open("1m", numbers)
                for window in (hour, minute):
                    window.add(counted, int(start), int(end))
                picked = counted.value[start:end][counted.number[start:end]]
                numbers.write(picked.tobytes())
        yield "1m", minute.window()
        yield "1h", hour.window()


class _Open:
    """A window that more rows may come into.

    Args:
        numbers: where its numbers are, from the present end of the file on.
    """

    def __init__(self, width: str, numbers: IO[bytes]) -> None:
        self._width_ns = WIDTHS_NS[width]
        self._numbers, self._at = numbers, numbers.tell()
        self._found = np.zeros(1, WINDOW)
        self.number: int | None = None

    def add(self, counted: Counted, start: int, end: int) -> None:
        """Take some rows in, all of this window."""
        part = sum_windows(counted.part(start, end), self._width_ns)
        [new], [found] = part, self._found
        if self.number is None:
            self.number = int(new["number"])
            self._found = part
            return
        if new["count"]:
            fresh = not found["count"]
            found["min"] = new["min"] if fresh else _lower(found["min"], new["min"])
            found["max"] = new["max"] if fresh else -_lower(-found["max"], -new["max"])
            found["first"] = new["first"] if fresh else found["first"]
            found["last"] = new["last"]
        if new["texts"]:
            if not found["texts"]:
                found["first_text"] = new["first_text"]
            found["last_text"] = new["last_text"]
        if new["count"] or new["texts"]:
            if not found["count"] and not found["texts"]:
                found["first_time_ns"] = new["first_time_ns"]
            found["last_time_ns"] = new["last_time_ns"]
        for name in ("count", "nans", "texts"):
            found[name] += new[name]

    def window(self) -> NDArray[np.void]:
        """Return the window, now that nothing comes any more."""
        [found] = self._found
        if found["count"]:
            end = self._numbers.tell()
            with np.errstate(all="ignore"):
                found["sum"] = added(self._numbers, self._at, int(found["count"]))
                found["mean"] = found["sum"] / found["count"]
                if overflown(self._found).any():
                    scaled = added(self._numbers, self._at, int(found["count"]), SCALE)
                    found["mean"] = scaled / found["count"] / SCALE
            self._numbers.seek(end)
        return self._found


def _lower(one: np.float64, other: np.float64) -> np.float64:
    """Return the least of two: -0.0 before 0.0."""
    return min(one, other, key=lambda number: (number, not np.signbit(number)))


def added(numbers: IO[bytes], at: int, count: int, scale: float = 1.0) -> np.float64:
    """Return the sum of so many doubles of a file, times `scale`: bit for bit that of `np.add.reduceat`.

    That is the first one, and to it the sum of all others by halves.
    """
    [first] = _doubles(numbers, at, 1) * scale
    return first + _halves(numbers, at + 8, count - 1, scale) if count > 1 else first  # type: ignore[no-any-return]


def _halves(numbers: IO[bytes], at: int, count: int, scale: float) -> np.float64:
    if count > ADDED:
        half = count // 2
        half -= half % 8
        low = _halves(numbers, at, half, scale)
        return low + _halves(numbers, at + 8 * half, count - half, scale)
    # -0.0 and a number is that number.
    found = np.append(-0.0, _doubles(numbers, at, count) * scale)
    return np.add.reduceat(found, [0])[0]  # type: ignore[no-any-return]


def _doubles(numbers: IO[bytes], at: int, count: int) -> Floats:
    numbers.seek(at)
    return np.frombuffer(numbers.read(8 * count), np.float64)


def counted_of(pieces: Iterable[Rows]) -> Iterator[Counted]:
    """Yield the rows that count, in order, with all of one stamp together; a long stamp in parts."""
    for stamps in grouped(pieces, _stamp):
        if isinstance(stamps, Long):
            yield from _of_long_stamp(stamps)
        else:
            yield Counted(stamps, repeats(stamps))


def _of_long_stamp(pieces: Iterable[Rows]) -> Iterator[Counted]:
    with scratch_file() as file:
        count = alone = 0
        for piece in pieces:
            file.write(piece.tobytes())
            count += len(piece)
            alone += int(piece["alone"].sum())
        repeat = _Bits(count)
        parts = -(-alone // TOLD_APART)
        odd = secrets.randbits(63) | 1  # nobody knows beforehand which readings are one part
        for part in range(parts):
            _note_repeats(file, repeat, _Part(odd, part, parts))
        for at, rows in _read(file):
            yield Counted(rows, repeat.of(at, len(rows)))


def _read(file: IO[bytes]) -> Iterator[tuple[int, Rows]]:
    """Yield rows, and how many were before them."""
    at = 0
    while len(rows := read_rows(file, at * ROW.itemsize, PIECE_ROWS)):
        yield at, rows
        at += len(rows)


class _Bits:
    """A bit for each of many rows."""

    def __init__(self, count: int) -> None:
        self._bytes = np.zeros(count // 8 + 1, np.uint8)

    def set(self, rows: Ints) -> None:
        """Set those of some rows."""
        np.bitwise_or.at(self._bytes, rows >> 3, (128 >> (rows & 7)).astype(np.uint8))

    def of(self, at: int, count: int) -> Flags:
        """Return those of `count` rows from `at` on, which is a multiple of 8."""
        return np.unpackbits(self._bytes[at >> 3 :], count=count).astype(bool)


def _note_repeats(file: IO[bytes], repeat: _Bits, part: _Part) -> None:
    """Set the bits of those chosen rows of one stamp that `repeats` finds."""
    said = _what(np.empty(0, ROW))
    for _, rows in _read(file):
        said = np.union1d(said, _what(rows[rows["alone"] & part.has(rows)]))
    there = np.zeros(len(said), dtype=bool)
    for _, rows in _read(file):
        there[np.isin(said, _what(rows[~rows["alone"]]))] = True
    for at, rows in _read(file):
        mine = np.flatnonzero(rows["alone"] & part.has(rows))
        which = np.searchsorted(said, _what(rows[mine]))
        _, firsts = np.unique(which, return_index=True)
        again = np.ones(len(mine), dtype=bool)
        again[firsts] = there[which[firsts]]
        there[which] = True
        repeat.set(at + mine[again])


def _what(rows: Rows) -> NDArray[np.bytes_]:
    """Return rows' contents as bytes; equal contents give equal bytes."""
    words = np.empty((len(rows), 3), np.int64)
    words[:, 0], words[:, 1:] = rows["dtype"], rows["says"]
    return words.view("S24").ravel()


class _Part(NamedTuple):
    """One of several parts of all that rows can say."""

    odd: int
    part: int
    parts: int

    def has(self, rows: Rows) -> Flags:
        """Return which rows say something of this part."""
        says, odd = np.ascontiguousarray(rows["says"]).view(np.uint64), np.uint64(self.odd)
        mixed = (says[:, 0] ^ (says[:, 1] * odd)) * odd
        found: Flags = (mixed >> np.uint64(33)) % np.uint64(self.parts) == self.part
        return found
