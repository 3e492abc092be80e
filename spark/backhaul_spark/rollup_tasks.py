"""The two tasks of a rollup: find touched minutes, and sum up hours. Executor side, without Spark.

A task reads the Parquet files itself, in columns, and sends back a small Arrow table. Written as
a Spark join and shuffle the same work took eight times as long: every row passed through the JVM
and back for nothing but to be sorted (docs/adr/0003-delta-through-delta-rs.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from backhaul_spark.files import filesystem
from backhaul_spark.windows import INPUT, SERIES, WIDTHS_NS, WINDOWS, in_order, sum_windows

TOUCHED = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in SERIES),
        ("minute", pa.int64()),
        ("ingest", pa.int64()),
    ]
)
# A million points are 50 MB before minutes are made of them, and these are few.
_FEW = {"batch_size": 1 << 17, "batch_readahead": 2, "fragment_readahead": 1}
_MERGE_ROWS = 1 << 20
_MINUTE_NS, _HOUR_NS = WIDTHS_NS["1m"], WIDTHS_NS["1h"]


@dataclass(frozen=True, slots=True)
class FindTouched:
    """Find the minutes of each series that points after ingest `done`, up to `last`, have come into."""

    uri: str
    paths: tuple[str, ...]
    done: int
    last: int

    def run(self) -> pa.Table:
        """Return each minute once (schema TOUCHED), with the first ingest that came into it."""
        fresh = (pc.field("ingest") > self.done) & (pc.field("ingest") <= self.last)
        found: list[pa.Table] = [TOUCHED.empty_table()]
        points = _points(self.uri, self.paths, fresh)
        for batch in points.to_batches(columns=[*SERIES, "time_ns", "ingest"], **_FEW):
            minute = np.floor_divide(batch.column("time_ns").to_numpy(), _MINUTE_NS)
            rows = pa.Table.from_batches([batch]).drop_columns("time_ns")
            found.append(first_touches(rows.append_column("minute", pa.array(minute))))
            if sum(part.num_rows for part in found[1:]) > _MERGE_ROWS:
                found = [first_touches(pa.concat_tables(found))]
        return first_touches(pa.concat_tables(found))


@dataclass(frozen=True, slots=True)
class SumHours:
    """Sum up the touched windows of the hours `first` to `last` (since 1970, both included).

    Points of ingests after `ingest` are for the next rollup, and not in it.

    `touched` (schema TOUCHED) names them; points of other devices than its are not even read.
    """

    uri: str
    paths: tuple[str, ...]
    first: int
    last: int
    ingest: int
    touched: pa.Table

    def run(self) -> pa.Table:
        """Return the windows, schema WINDOWS."""
        time_ns = pc.field("time_ns")
        # time as well: the files carry its bounds, and are skipped by them.
        within = (time_ns >= self.first * _HOUR_NS) & (time_ns < (self.last + 1) * _HOUR_NS)
        within &= pc.field("ingest") <= self.ingest
        devices = self.touched.column("device").unique()
        points = _points(self.uri, self.paths, within & pc.field("device").isin(devices))
        rows = points.to_table(columns=list(INPUT))
        if not rows.num_rows:
            return WINDOWS.empty_table()
        windows = pa.Table.from_batches(sum_windows(in_order(rows)))
        keys = ["width", *SERIES, "window_start"]
        due = windows.join(wanted_windows(self.touched), keys, join_type="left semi")
        return due.select(WINDOWS.names)


def first_touches(rows: pa.Table) -> pa.Table:
    """Return each minute of each series once (schema TOUCHED), with the lowest of its ingests."""
    found = rows.group_by([*SERIES, "minute"]).aggregate([("ingest", "min")])
    return found.rename_columns({"ingest_min": "ingest"}).select(TOUCHED.names).cast(TOUCHED)


def wanted_windows(touched: pa.Table) -> pa.Table:
    """Return the keys of the windows, of every width, that touched minutes lie in."""
    parts = []
    for width, width_ns in WIDTHS_NS.items():
        per = width_ns // _MINUTE_NS
        window = np.floor_divide(touched.column("minute").to_numpy(), per) * (width_ns // 1000)
        keys = touched.select(SERIES).append_column("window_start", pa.array(window))
        keys = keys.group_by(keys.column_names).aggregate([])
        start = keys.column("window_start").cast(WINDOWS.field("window_start").type)
        keys = keys.set_column(keys.column_names.index("window_start"), "window_start", start)
        parts.append(keys.append_column("width", pa.repeat(pa.scalar(width), keys.num_rows)))
    return pa.concat_tables(parts)


def packed(table: pa.Table) -> bytes:
    """Return a table as bytes to send: all results of a run are in the driver's JVM at one time.

    Compressed a million touched minutes are 10 MB. Pickled they can be 1,500 MB, as every slice
    (group_by makes one of each 32,768 rows) takes the whole column along.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: bytes) -> pa.Table:
    """Return the table again."""
    return pa.ipc.open_stream(data).read_all()


def _points(uri: str, paths: tuple[str, ...], wanted: ds.Expression) -> ds.Dataset:
    """Return what of some files belongs into windows at all; a text that many rows have is there once."""
    # What is deleted, no reading, or has no time one could believe, is in no window. (Files of
    # the date 1970-01-01 are not among the paths.)
    readings = pc.field("letter").isin(["f", "p"]) & pc.field("dtype").isin([1, 2, 3, 4])
    wanted = wanted & readings & (pc.bit_wise_and(pc.field("tombstone"), 1) == 0)
    system, root = filesystem(uri)
    names = [f"{root}/{path}" for path in paths]
    kind = ds.ParquetFileFormat(dictionary_columns={"value_text"})
    return ds.dataset(names, format=kind, filesystem=system).filter(wanted)
