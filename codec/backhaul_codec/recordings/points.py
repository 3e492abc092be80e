"""Rows of a recording as points: pure, no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from backhaul_codec import Point, Value
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.mapping import MappedSeries, Mapping, Template
from backhaul_codec.recordings.times import row_time

if TYPE_CHECKING:
    from backhaul_codec.recordings.readers import Chunk

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class PointsRow(NamedTuple):
    """The points of one row; ``time_ns`` None: it has no valid time, and its points' times say nothing.

    ``number`` counts from 0 after any header line.
    """

    time_ns: int | None
    points: list[Point]
    number: int


@dataclass(slots=True)
class Tally:
    """The counts of rows by fate; ``untimed`` holds (first, last) runs of rows without a time."""

    rows: int = 0
    rows_filtered: int = 0
    rows_untimed: int = 0
    points: int = 0
    values_null: int = 0
    untimed: list[tuple[int, int]] = field(default_factory=list)
    values_unfit: Counter[str] = field(default_factory=Counter)

    def note_untimed(self, row: int) -> None:
        """Count a row whose time is missing or no time."""
        self.rows_untimed += 1
        if self.untimed and self.untimed[-1][1] == row - 1:
            self.untimed[-1] = (self.untimed[-1][0], row)
        else:
            self.untimed.append((row, row))


class RowMapper:
    """Applies a mapping to chunks; `tally` counts the fate of every row."""

    def __init__(self, mapping: Mapping, *, text_only: bool) -> None:
        self.tally = Tally()
        self._mapping = mapping
        self._text_only = text_only
        self._readings = [
            (reading, Template(reading.node), Template(reading.type), Template(reading.key))
            for reading in mapping.readings()
        ]

    def times(self, chunk: Chunk) -> Iterator[tuple[int, Any, int | None]]:
        """Yield number, cell and time of every row that is not filtered out; nothing is counted."""
        time = self._mapping.time
        cells = chunk.columns[time.column]
        for index in self._chosen(chunk, 0):
            raw = cells[index]
            yield chunk.first_row + index, raw, row_time(raw, time.unit, dates=time.dates)

    def _chosen(self, chunk: Chunk, begin: int) -> Iterator[int]:
        """Yield the places of a chunk's rows that are not filtered out."""
        filters = [
            (chunk.columns[item.column], {str(value) for value in item.only})
            for item in self._mapping.filter
        ]
        for index in range(begin, chunk.rows):
            if all(str(column[index]) in only for column, only in filters):
                yield index

    def rows(self, chunk: Chunk, from_row: int = 0) -> Iterator[PointsRow]:
        """Yield every row from one on that is not filtered out, in order."""
        times = chunk.columns[self._mapping.time.column]
        tally = self.tally
        passed = begin = max(0, from_row - chunk.first_row)
        for index in self._chosen(chunk, begin):
            tally.rows += index + 1 - passed
            tally.rows_filtered += index - passed
            passed = index + 1
            time = row_time(times[index], self._mapping.time.unit, dates=self._mapping.time.dates)
            if time is None:
                tally.note_untimed(chunk.first_row + index)
            points = []
            for reading, node, type_, key in self._readings:
                raw = chunk.columns[reading.column][index]
                if raw is None:
                    tally.values_null += 1
                    continue
                value = self._value(raw, reading)
                if value is None:
                    tally.values_unfit[reading.column] += 1
                    continue
                points.append(
                    Point(
                        node=node.fill(chunk.columns, index),
                        type=type_.fill(chunk.columns, index),
                        key=key.fill(chunk.columns, index),
                        time=time or 0,
                        value=value,
                    )
                )
            tally.points += len(points)
            yield PointsRow(time, points, chunk.first_row + index)
        rest = max(0, chunk.rows - passed)
        tally.rows += rest
        tally.rows_filtered += rest

    def _value(self, raw: Any, reading: MappedSeries) -> Value | None:
        """Return a cell as a value, None where it does not fit the mapping's dtype."""
        if self._text_only and reading.dtype != "text":
            return _number(raw, reading.dtype)
        if reading.dtype == "text":
            return str(raw)
        if isinstance(raw, bool):
            raw = int(raw)
        if reading.dtype == "float64" and isinstance(raw, int):
            return float(raw)
        if reading.dtype == "int64":
            return int(raw) if isinstance(raw, int) or _is_whole(raw) else None
        if isinstance(raw, int | float | str | bytes):
            return raw
        raise MappingError(f"holds {type(raw).__name__}, which is no value", column=reading.column)


def _number(text: str, dtype: str) -> Value | None:
    """Return a CSV cell as a number; text that is none stays text, if the dtype allows."""
    if not _NUMBER.fullmatch(text.strip()):
        return text if dtype == "auto" else None
    number = float(text)
    if dtype != "int64":
        return number
    return int(text) if re.fullmatch(r"[+-]?\d+", text.strip()) else None


def _is_whole(raw: Any) -> bool:
    return isinstance(raw, float) and raw.is_integer()
