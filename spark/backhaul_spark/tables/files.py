"""Files of a table: opening them wherever the table lies, and Delta's statistics of one."""

from __future__ import annotations

import math
import re
import sys
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import fs

# Text in statistics is cut: a prefix bounds from below, and from above with the last character
# there is behind it.
STATS_TEXT_MAX = 32
LAST_TEXT = "\U0010ffff"


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
