"""One Parquet file of a table: how it is written, and how repeats are taken out of points again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_spark.files import file_stats, open_input, open_output, remove

if TYPE_CHECKING:
    from collections.abc import Mapping

# A row group is what a reader can skip, and what a task holds in memory for each date it meets.
ROW_GROUP_ROWS = 1 << 18


class PartFile:
    """A file of one partition in the making. Nothing refers to it until it is committed.

    Args:
        uri: the table.
        partition: the partition's columns and values, in the table's order.
        ingest: a number for the name.
        schema: of the rows, without the partition columns.
    """

    def __init__(
        self, uri: str, partition: Mapping[str, str], ingest: int, schema: pa.Schema
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

    Args:
        uri: the table.
        file: as PartFile.close returned it, not committed yet.
        ingest: the number in the name of a rewritten file.
        repeats: per stream, the sequences of the messages to leave out.
    """
    with open_input(uri, file["path"]) as source:
        parquet = pq.ParquetFile(source)
        part: PartFile | None = None
        masks = [_mask(parquet, group, repeats) for group in range(parquet.num_row_groups)]
        if all(pc.all(mask).as_py() for mask in masks):
            return file
        for group, mask in enumerate(masks):
            table = parquet.read_row_group(group).filter(mask)
            if table.num_rows:
                part = part or PartFile(uri, file["partition"], ingest, table.schema)
                part.write(table)
    remove(uri, file["path"])
    return part.close() if part is not None else None


def _mask(parquet: pq.ParquetFile, group: int, repeats: dict[str, pa.Array]) -> pa.Array:
    identity = parquet.read_row_group(group, columns=["stream", "stream_seq"]).combine_chunks()
    drop = pa.repeat(pa.scalar(False), identity.num_rows)
    for stream, seqs in repeats.items():
        inside = pc.is_in(identity.column("stream_seq"), value_set=seqs)
        drop = pc.or_(drop, pc.and_(pc.equal(identity.column("stream"), stream), inside))
    return pc.invert(drop)
