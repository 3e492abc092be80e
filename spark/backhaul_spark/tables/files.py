"""Files of a table: those of a version, opening one wherever the table lies, and Delta's statistics of it."""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction
from pyarrow import fs

from backhaul_spark.tables.schemas import TableSpec

# Text in statistics is cut: a prefix bounds from below, and from above with the last character
# there is behind it.
STATS_TEXT_MAX = 32
LAST_TEXT = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table: path (relative), size in bytes, rows, its partition, and the bounds of its columns.

    `bounds`: by `min.NAME`, `max.NAME` and `null_count.NAME`; of what nobody knows None, or nothing.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    bounds: Mapping[str, Any]

    def may_have(self, devices: Sequence[str]) -> bool:
        """Say by its bounds whether it may have rows of some devices, given sorted."""
        low, high = self.bounds.get("min.device"), self.bounds.get("max.device")
        begin = 0 if low is None else bisect_left(devices, low)
        end = len(devices) if high is None else bisect_right(devices, high)
        return begin < end

    def removal(self, now_ns: int, *, data_change: bool = True) -> RemoveAction:
        """Return the action that takes it out."""
        partition: dict[str, str | None] = {**self.partition}
        return RemoveAction(self.path, data_change, now_ns // 1_000_000, self.size, partition)


def data_files(table: DeltaTable, spec: TableSpec) -> list[DataFile]:
    """Return the files of a table as loaded, by path: in each partition the oldest first."""
    found = [
        DataFile(
            unquote(each["path"]),
            each["size_bytes"],
            each["num_records"],
            {name: str(each[f"partition.{name}"]) for name in spec.partition_by},
            each,
        )
        for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    ]
    return sorted(found, key=lambda file: file.path)


def filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a directory or URI, and the path within it."""
    if "://" in uri:
        # Hadoop's name for what everybody else calls s3; a root may have to please both.
        system, path = fs.FileSystem.from_uri(re.sub("^s3a://", "s3://", uri))
        return system, path
    return fs.LocalFileSystem(), uri


def subtree(uri: str) -> fs.FileSystem:
    """Return the part below a directory or URI as a file system of its own."""
    system, root = filesystem(uri)
    return fs.SubTreeFileSystem(root, system)


def open_output(uri: str, relative: str) -> pa.NativeFile:
    """Open a new file under `uri` for writing, making its directory."""
    system, root = filesystem(uri)
    path = f"{root}/{relative}"
    system.create_dir(path.rpartition("/")[0], recursive=True)
    return system.open_output_stream(path)


def open_input(uri: str, relative: str) -> pa.NativeFile:
    """Open a file under `uri` for reading at any position."""
    system, root = filesystem(uri)
    return system.open_input_file(f"{root}/{relative}")


def remove(uri: str, relative: str) -> None:
    """Delete a file that no commit refers to."""
    system, root = filesystem(uri)
    system.delete_file(f"{root}/{relative}")


def file_paths(uri: str) -> set[str]:
    """Return the Parquet files below `uri`, whether a commit refers to them or not."""
    system, root = filesystem(uri)
    found = system.get_file_info(fs.FileSelector(root, recursive=True))
    return {each.path for each in found if each.path.endswith(".parquet")}


def file_stats(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return `rows`, and `stats` as Delta's log wants them, from a Parquet footer.

    Every column but bytes has bounds unless it is all null. Not for speed alone: of a column
    without bounds, delta-rs tells Arrow that it is `>= null`, and Arrow skips the file.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        chunks = [metadata.row_group(g).column(index) for g in range(metadata.num_row_groups)]
        text = column.logical_type.type == "STRING"
        if column.physical_type == "BYTE_ARRAY" and not text:
            continue
        nulls[column.name] = sum(c.statistics.null_count for c in chunks if c.is_stats_set)
        if nulls[column.name] == metadata.num_rows:
            continue
        bounds = _bounds(chunks)
        if bounds is None and text:
            bounds = "", LAST_TEXT * 4  # values too long for Parquet to keep bounds of
        if bounds is not None:
            lows[column.name] = _json_value(bounds[0], upper=False)
            highs[column.name] = _json_value(bounds[1], upper=True)
    stats = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    return {"rows": metadata.num_rows, "stats": {"numRecords": metadata.num_rows} | stats}


def _bounds(chunks: list[pq.ColumnChunkMetaData]) -> tuple[Any, Any] | None:
    known = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
    with_values = [each for each in known if each.num_values]
    if len(known) < len(chunks) or not all(each.has_min_max for each in with_values):
        return None
    if not with_values:
        return None
    return min(each.min for each in with_values), max(each.max for each in with_values)


def _json_value(value: Any, *, upper: bool) -> Any:
    if isinstance(value, datetime):
        # Delta's statistics have milliseconds; round outwards, or a reader would skip a file.
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if upper and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > STATS_TEXT_MAX:
        return value[:STATS_TEXT_MAX] + LAST_TEXT * upper
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no infinity; the greatest double bounds everything else.
        return math.copysign(sys.float_info.max, value)
    return value
