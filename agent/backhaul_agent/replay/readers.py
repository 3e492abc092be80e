"""Recordings read in chunks of rows: Parquet by row group, CSV line by line. Never all in memory."""

from __future__ import annotations

import csv
import io
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from backhaul_agent.errors import MappingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_ROWS = 4096


class Chunk(NamedTuple):
    """Some rows, column by column. ``first_row`` counts from 0 after any header line.

    ``progress`` grows by the same measure as the recording's ``size``.
    """

    first_row: int
    rows: int
    columns: dict[str, list[Any]]
    progress: int


class Recording(Protocol):
    """An open recording."""

    size: int
    text_only: bool

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, in order."""
        ...


@contextmanager
def open_recording(path: Path, columns: list[str]) -> Iterator[Recording]:
    """Open a .parquet or .csv file and make sure that it has these columns.

    Raises:
        MappingError: no such file or column, an unknown kind of file, or pyarrow is missing.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            with _open_parquet(path, columns) as parquet:
                yield parquet
        elif kind == ".csv":
            with path.open("rb") as file:
                yield CsvRecording(file, path.stat().st_size, columns)
        else:
            raise MappingError(f"{path}: only .parquet and .csv files can be replayed")
    except OSError as error:
        raise MappingError(f"{path}: {error}") from error


class CsvRecording:
    """A CSV file with a header line. Every value is text; an empty one is null."""

    text_only = True

    def __init__(self, file: io.BufferedReader, size: int, columns: list[str]) -> None:
        self.size = size
        self._file = file
        self._columns = columns
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        self._rows = csv.reader(text)
        try:
            header = next(self._rows, [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise MappingError(f"the header is not CSV: {error}") from error
        _require(columns, header)
        self._places = [header.index(name) for name in columns]

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, in order; a short row ends in nulls."""
        first_row, rows = 0, list[list[str]]()
        try:
            for row in self._rows:
                rows.append(row)
                if len(rows) == CHUNK_ROWS:
                    yield self._chunk(first_row, rows)
                    first_row, rows = first_row + len(rows), []
        except (csv.Error, UnicodeDecodeError) as error:
            raise MappingError(f"row {first_row + len(rows)} is not CSV: {error}") from error
        if rows:
            yield self._chunk(first_row, rows)

    def _chunk(self, first_row: int, rows: list[list[str]]) -> Chunk:
        columns = {
            name: [(row[place] or None) if place < len(row) else None for row in rows]
            for name, place in zip(self._columns, self._places, strict=True)
        }
        return Chunk(first_row, len(rows), columns, self._file.tell())


class ParquetRecording:
    """A Parquet file. Values keep their types; a float32 becomes the float64 of equal value."""

    text_only = False

    def __init__(self, file: Any, columns: list[str]) -> None:
        self.size = file.metadata.num_rows
        self._file = file
        self._columns = columns
        _require(columns, file.schema_arrow.names)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, in order."""
        pa, _ = _pyarrow()
        row = 0
        batches = self._file.iter_batches(batch_size=CHUNK_ROWS, columns=self._columns)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise MappingError(f"unreadable after row {row}: {error}") from error
            if batch is None:
                return
            columns = {name: _values(batch.column(name)) for name in self._columns}
            yield Chunk(row, batch.num_rows, columns, row + batch.num_rows)
            row += batch.num_rows


@contextmanager
def _open_parquet(path: Path, columns: list[str]) -> Iterator[ParquetRecording]:
    pa, pq = _pyarrow()
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise MappingError(f"{path}: {error}") from error
    with file:
        yield ParquetRecording(file, columns)


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet, imported only now: a vehicle has neither."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MappingError(
            "Parquet needs pyarrow, which a vehicle does not: pip install 'backhaul[replay]'"
        ) from error


def _values(column: Any) -> list[Any]:
    """Return a column as Python values, its timestamps as integers of nanoseconds."""
    pa, _ = _pyarrow()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _require(columns: list[str], present: list[str]) -> None:
    for name in columns:
        if name not in present:
            raise MappingError(f"not in the recording, which has {', '.join(present)}", column=name)
