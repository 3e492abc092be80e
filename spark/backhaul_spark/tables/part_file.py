"""One Parquet file of a table: how it is written, and how repeats are taken out of points again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_spark.tables.files import file_stats, open_input, open_output, remove
from backhaul_spark.tables.schemas import TableSpec

# A row group is what a reader can skip, and what a task holds in memory for each date it meets.
ROW_GROUP_ROWS = 1 << 18
# The same of what its rows come to, each with copies of its texts: who reads it has it in memory so.
ROW_GROUP_BYTES = 128 << 20
# Rows that are read together, texts by their dictionaries: never a row group whole.
READ_ROWS = 1 << 15
_READ_BYTES = 1 << 20


class PartFile:
    """A file of one partition in the making. Nothing refers to it until it is committed.

    Args:
        partition: the partition's columns and values, in the table's order.
        ingest: a number for the name.
        schema: of the rows, without the partition columns.
        ascending: columns of whole numbers or times that mostly grow from row to row.
    """

    def __init__(
        self,
        uri: str,
        partition: Mapping[str, str],
        ingest: int,
        schema: pa.Schema,
        ascending: Sequence[str] = (),
    ) -> None:
        self._partition = dict(partition)
        folder = "".join(f"{name}={value}/" for name, value in partition.items())
        self._path = f"{folder}part-{ingest:012d}-{uuid.uuid4().hex}.parquet"
        self._sink = open_output(uri, self._path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            # Plain types in the file: other readers know nothing of Arrow's dictionaries.
            store_schema=False,
            # Each is new: a dictionary would only be one more copy, where differences are next to nothing.
            use_dictionary=[name for name in schema.names if name not in ascending],
            column_encoding=dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
            metadata_collector=self._metadata,
        )

    def write(self, table: pa.Table) -> None:
        """Append rows; each call begins a row group."""
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def close(self) -> dict[str, Any]:
        """Finish the file and return its path (relative), partition, size, rows and stats."""
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        facts = {"path": self._path, "partition": self._partition, "size": size}
        return facts | file_stats(self._metadata[0])


def without_messages(
    uri: str, file: dict[str, Any], ingest: int, repeats: dict[str, pa.Array]
) -> dict[str, Any] | None:
    """Return the file without the points of some messages: itself, a rewritten one, or None if empty.

    `file` is as PartFile.close returned it, not committed yet; `repeats` has per stream the sequences to leave out.
    """
    changed, rest = without_rows(
        *(uri, file["path"], file["partition"], ingest),
        keep=lambda batch: _mask(batch, repeats),
        columns=("stream", "stream_seq"),
    )
    if not changed:
        return file
    remove(uri, file["path"])
    return rest


def without_rows(
    uri: str,
    path: str,
    partition: Mapping[str, str],
    number: int,
    *,
    keep: Callable[[pa.RecordBatch], pa.Array],
    columns: Sequence[str],
) -> tuple[bool, dict[str, Any] | None]:
    """Return whether rows of a file are to go, and the new file, if any, that holds the others.

    `keep` returns of a batch which rows stay, as booleans; it looks at no other `columns`. The file stays as it is.
    """
    with open_input(uri, path) as source:
        if all(pc.all(keep(batch)).as_py() for batch in read_batches(source, columns)):
            return False, None
    with open_input(uri, path) as source:
        part: PartFile | None = None
        found = (batch.filter(keep(batch)) for batch in read_batches(source))
        for table in row_groups(_with_own_values(batch) for batch in found if batch.num_rows):
            part = part or PartFile(uri, partition, number, table.schema)
            part.write(table)
    return True, part.close() if part is not None else None


def _with_own_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose dictionaries have the values of its rows alone: a file has each of them, of a row or not."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            used = pc.unique(column.indices).drop_null()
            indices = pc.index_in(column.indices, value_set=used)
            column = pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _mask(batch: pa.RecordBatch, repeats: dict[str, pa.Array]) -> pa.Array:
    drop = pa.repeat(pa.scalar(False), batch.num_rows)
    streams = batch.column("stream").cast(pa.string())
    for stream, seqs in repeats.items():
        inside = pc.is_in(batch.column("stream_seq"), value_set=seqs)
        drop = pc.or_(drop, pc.and_(pc.equal(streams, stream), inside))
    return pc.invert(drop)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a file with the columns of `schema`; null where an older file has none."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def stored_schema(spec: TableSpec) -> pa.Schema:
    """Return the columns that the files of a table have: all but those of its partitions."""
    return pa.schema([field for field in spec.schema if field.name not in spec.partition_by])


def read_batches(
    source: Any,
    columns: Sequence[str] | None = None,
    wanted: Callable[[pq.RowGroupMetaData], bool] = lambda group: True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, a few at a time; texts and bytes as dictionaries (`by_dictionary`).

    A long text that stands in every row is so in memory once. Row groups that are not `wanted` are skipped.
    """
    schema = pq.read_schema(source)
    source.seek(0)
    names = [field.name for field in schema if _is_text(field.type)]
    parquet = pq.ParquetFile(source, read_dictionary=names, buffer_size=_READ_BYTES)
    for group in range(parquet.num_row_groups):
        if not wanted(parquet.metadata.row_group(group)):
            continue
        yield from parquet.iter_batches(READ_ROWS, row_groups=[group], columns=columns)


def by_dictionary(schema: pa.Schema) -> pa.Schema:
    """Return a schema as `read_batches` reads it."""
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if _is_text(field.type)
            else field
            for field in schema
        ]
    )


def row_groups(
    batches: Iterable[pa.RecordBatch], rows_max: int | None = None
) -> Iterator[pa.Table]:
    """Yield the same rows in tables of about `rows_max` (ROW_GROUP_ROWS), or ROW_GROUP_BYTES: the most in memory."""
    rows_max = rows_max or ROW_GROUP_ROWS
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for part, part_size in _cut(batch):
            if held and (rows >= rows_max or size + part_size > ROW_GROUP_BYTES):
                yield pa.Table.from_batches(unified(held))
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + part_size
    if held:
        yield pa.Table.from_batches(unified(held))


def unified(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches that share their dictionaries."""
    if len(batches) == 1:
        return batches
    merged: list[pa.RecordBatch] = pa.Table.from_batches(batches).unify_dictionaries().to_batches()
    return merged


def _cut(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the parts of a batch of at most ROW_GROUP_BYTES each, with their sizes.

    A row alone may come to more.
    """
    sizes = np.full(batch.num_rows, _fixed_bytes(batch.schema), np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices).fill_null(0)
            sizes += lengths.to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes)
    start = done = 0
    while start < batch.num_rows:
        end = max(start + 1, int(np.searchsorted(ends, done + ROW_GROUP_BYTES, "right")))
        yield batch.slice(start, end - start), int(ends[end - 1]) - done
        start, done = end, int(ends[end - 1])


def _fixed_bytes(schema: pa.Schema) -> int:
    return sum(0 if pa.types.is_dictionary(kind) else kind.bit_width // 8 for kind in schema.types)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
