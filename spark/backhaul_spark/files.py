"""Files of a table: opening them wherever the table lies, and Delta's statistics of one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import fs

# What a reader prunes files by. Values and text stay out: wide, and nobody asks for them by range.
STATS_COLUMNS = (
    "device",
    "node",
    "type",
    "key",
    "time",
    "time_ns",
    "epoch",
    "seq",
    "stream_seq",
    "ingest",
)
# Delta cuts long text in statistics; a file whose names are longer simply is not pruned by them.
STATS_TEXT_MAX = 128


def filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a directory or URI, and the path within it."""
    if "://" in uri:
        system, path = fs.FileSystem.from_uri(uri)
        return system, path
    return fs.LocalFileSystem(), uri


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


def file_stats(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return `rows`, and `stats` as Delta's log wants them, from a Parquet footer."""
    stats: dict[str, Any] = {"numRecords": metadata.num_rows}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    names = [metadata.schema.column(i).name for i in range(metadata.num_columns)]
    for name in STATS_COLUMNS:
        if name not in names:
            continue
        bounds = _bounds(metadata, names.index(name))
        if bounds is not None:
            lows[name], highs[name] = _json_value(bounds[0], False), _json_value(bounds[1], True)
    stats |= {"minValues": lows, "maxValues": highs}
    return {"rows": metadata.num_rows, "stats": stats}


def _bounds(metadata: pq.FileMetaData, column: int) -> tuple[Any, Any] | None:
    lows, highs = [], []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        if not chunk.is_stats_set or not chunk.statistics.has_min_max:
            return None
        lows.append(chunk.statistics.min)
        highs.append(chunk.statistics.max)
    if not lows or any(
        isinstance(text, str) and len(text) > STATS_TEXT_MAX for text in highs + lows
    ):
        return None
    return min(lows), max(highs)


def _json_value(value: Any, upper: bool) -> Any:
    if isinstance(value, datetime):
        # Delta's statistics have milliseconds; round outwards, or a reader would skip a file.
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if upper and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
