"""Recordings read in chunks of rows, never all in memory, with any contents.

CSV is read line by line, a row no longer than `ROW_CHARS_MAX`; Parquet page by page, texts and byte
strings by their dictionaries, so that a value that stands in every row is in memory once. What would
take more is refused by name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from backhaul_codec.errors import MappingError

SUFFIXES = (".csv", ".parquet")
"""Of the files that can be read, in lower case."""
CHUNK_ROWS = 4096
# What a chunk holds at most besides: characters of CSV, and about as many bytes of Parquet.
CHUNK_CHARS_MAX = 8 << 20
# Longer than any row of values that an agent takes; a file without line ends is one line.
ROW_CHARS_MAX = 1 << 20
# A column of one row group may say that it unpacks to more only as far as its own size bears it out:
# its largest page is in memory whole.
UNPACKED_BYTES_MAX = 64 << 20
UNPACKED_RATIO_MAX = 64
_READ_BYTES = 1 << 20
_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


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
    """Open a file with one of SUFFIXES and make sure that it has these columns.

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
            raise MappingError(f"{path}: only {' and '.join(SUFFIXES)} files can be read")
    except OSError as error:
        raise MappingError(f"{path}: {error}") from error


class CsvRecording:
    """A CSV file with a header line. Every value is text; an empty one is null."""

    text_only = True

    def __init__(self, file: io.BufferedReader, size: int, columns: list[str]) -> None:
        self.size = size
        self._file = file
        self._columns = columns
        self._lines = _Lines(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
        self._rows = csv.reader(self._lines)
        try:
            header = next(self._rows, [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise MappingError(f"the header is not CSV: {error}") from error
        except _LongRowError as error:
            raise MappingError(f"the header {error}") from error
        _require(columns, header)
        self._places = [header.index(name) for name in columns]

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, in order; a short row ends in nulls."""
        first_row, chars, rows = 0, 0, list[list[str]]()
        try:
            self._lines.row_chars = 0
            for row in self._rows:
                rows.append(row)
                chars += self._lines.row_chars
                self._lines.row_chars = 0
                if len(rows) == CHUNK_ROWS or chars >= CHUNK_CHARS_MAX:
                    yield self._chunk(first_row, rows)
                    first_row, chars, rows = first_row + len(rows), 0, []
        except (csv.Error, UnicodeDecodeError) as error:
            raise MappingError(f"row {first_row + len(rows)} is not CSV: {error}") from error
        except _LongRowError as error:
            raise MappingError(f"row {first_row + len(rows)} {error}") from error
        if rows:
            yield self._chunk(first_row, rows)

    def _chunk(self, first_row: int, rows: list[list[str]]) -> Chunk:
        columns = {
            name: [(row[place] or None) if place < len(row) else None for row in rows]
            for name, place in zip(self._columns, self._places, strict=True)
        }
        return Chunk(first_row, len(rows), columns, self._file.tell())


class _LongRowError(Exception):
    """A row that is longer than any that makes sense."""

    def __init__(self) -> None:
        super().__init__(
            f"is longer than {ROW_CHARS_MAX:,} characters: has the file no line ends, or an open quote?"
        )


class _Lines:
    """Yields the lines of a text; `row_chars`, which who takes rows of them sets to 0 after each.

    Raises:
        _LongRowError: the lines since then are too long together; no more of them was read.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self.row_chars = 0
        self._text = text

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(ROW_CHARS_MAX + 1):
            self.row_chars += len(line)
            if self.row_chars > ROW_CHARS_MAX:
                raise _LongRowError
            yield line


class ParquetRecording:
    """A Parquet file. Values keep their types; a float32 becomes the float64 of equal value."""

    text_only = False

    def __init__(self, file: Any, columns: list[str]) -> None:
        self.size = file.metadata.num_rows
        self._file = file
        self._columns = columns

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, in order."""
        pa, _ = _pyarrow()
        row = 0
        try:
            for group in range(self._file.num_row_groups):
                batches = self._file.iter_batches(
                    batch_size=self._chunk_rows(self._file.metadata.row_group(group)),
                    row_groups=[group],
                    columns=self._columns,
                )
                for batch in batches:
                    columns = {name: _values(batch.column(name)) for name in self._columns}
                    yield Chunk(row, batch.num_rows, columns, row + batch.num_rows)
                    row += batch.num_rows
        except (pa.ArrowException, OSError, MemoryError) as error:
            raise MappingError(f"unreadable after row {row}: {error}") from error

    def _chunk_rows(self, group: Any) -> int:
        """Return how many rows of a row group make a chunk.

        Raises:
            MappingError: what it says of a column, no chunk could hold.
        """
        unpacked, rows = 0, int(group.num_rows)
        for column in map(group.column, range(group.num_columns)):
            name, size = column.path_in_schema, column.total_uncompressed_size
            if name not in self._columns:
                continue
            packed = max(1, column.total_compressed_size)
            if size > UNPACKED_BYTES_MAX and size > UNPACKED_RATIO_MAX * packed:
                raise MappingError(
                    f"{packed:,} bytes of it unpack to {size:,}: write the file anew with"
                    " dictionaries, or in smaller row groups",
                    column=name,
                )
            unpacked += int(size)
        row_bytes = unpacked // max(1, rows) + 1
        return max(1, min(CHUNK_ROWS, CHUNK_CHARS_MAX // row_bytes))


@contextmanager
def _open_parquet(path: Path, columns: list[str]) -> Iterator[ParquetRecording]:
    pa, pq = _pyarrow()
    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
        _require(columns, schema.names)
        packed = _with_dictionaries(metadata)
        # A value that stands in each row is not copied out for each of them.
        by_dictionary = [
            name for name in columns if name in packed and _is_binary(schema.field(name).type)
        ]
        file = pq.ParquetFile(
            path, metadata=metadata, read_dictionary=by_dictionary, buffer_size=_READ_BYTES
        )
    except (pa.ArrowException, MemoryError) as error:
        raise MappingError(f"{path}: {error}") from error
    for name in columns:
        if pa.types.is_nested(schema.field(name).type):
            raise MappingError(
                f"holds {schema.field(name).type}, and a reading is one value", column=name
            )
    with file:
        yield ParquetRecording(file, columns)


def _with_dictionaries(metadata: Any) -> set[str]:
    """Return the columns that have a dictionary in any row group."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return {
        column.path_in_schema
        for group in groups
        for column in map(group.column, range(group.num_columns))
        if column.has_dictionary_page
    }


def _is_binary(kind: Any) -> bool:
    types = _pyarrow()[0].types
    return any(
        is_one(kind)
        for is_one in (
            types.is_string,
            types.is_binary,
            types.is_large_string,
            types.is_large_binary,
        )
    )


def _pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet, imported only now: a vehicle has neither."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MappingError(
            "Parquet needs pyarrow, which a vehicle does not: pip install '.[replay]'"
        ) from error


def _values(column: Any) -> list[Any]:
    """Return a column as Python values, its timestamps as integers of nanoseconds."""
    pa, _ = _pyarrow()
    if pa.types.is_dictionary(column.type):
        return _spread(column)
    values: list[Any]
    if pa.types.is_timestamp(column.type):
        # In Python: what no 64 bits of ns can say is no time, and stops nothing.
        unit_ns = _UNIT_NS[column.type.unit]
        values = column.cast(pa.int64()).to_pylist()
        return [None if value is None else value * unit_ns for value in values]
    values = column.to_pylist()
    return values


def _spread(column: Any) -> list[Any]:
    """Return the values of a dictionary's rows; those that are the same are one object."""
    used = column.indices.unique().drop_null()
    known = dict(zip(used.to_pylist(), _values(column.dictionary.take(used)), strict=True))
    known[None] = None
    return [known[index] for index in column.indices.to_pylist()]


def _require(columns: list[str], present: list[str]) -> None:
    for name in columns:
        if name not in present:
            raise MappingError(f"not in the recording, which has {', '.join(present)}", column=name)
