"""The two tasks of a rollup: find touched minutes, and sum up hours. Executor side, without Spark.

A task reads the Parquet files itself, in columns, and sends back a small Arrow table. Written as
a Spark join and shuffle the same work took eight times as long: every row passed through the JVM
and back for nothing but to be sorted (docs/adr/0003-delta-through-delta-rs.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.arrays import Ints
from backhaul_spark.rollup.long_windows import windows_of
from backhaul_spark.rollup.read import Wanted, readings, series_places
from backhaul_spark.rollup.rows import INPUT, SERIES, RowMaker
from backhaul_spark.rollup.sorted_rows import SortedRows
from backhaul_spark.rollup.windows import WIDTHS_NS, WINDOWS, as_windows

_MERGE_ROWS = 1 << 20
_MINUTE_NS, _HOUR_NS = WIDTHS_NS["1m"], WIDTHS_NS["1h"]


@dataclass(frozen=True, slots=True)
class Touch:
    """The windows to search for: of `width_ns`, for each of `keys` (columns of points), by `only` some series or all.

    `window`: the name of the column with their numbers since 1970.
    """

    keys: tuple[str, ...]
    window: str
    width_ns: int
    only: tuple[tuple[str, str, str], ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: `keys`, the window, and the ingest."""
        whole = [(self.window, pa.int64()), ("ingest", pa.int64())]
        return pa.schema([*((name, pa.string()) for name in self.keys), *whole])

    def firsts(self, rows: Sequence[pa.Table]) -> pa.Table:
        """Return each window once (columns of `schema`), with the lowest of its ingests."""
        table = pa.concat_tables([self.schema.empty_table(), *rows])
        found = table.group_by([*self.keys, self.window]).aggregate([("ingest", "min")])
        names = self.schema.names
        return found.rename_columns({"ingest_min": "ingest"}).select(names).cast(self.schema)


MINUTES = Touch(SERIES, "minute", _MINUTE_NS)
"""Minutes of series."""


@dataclass(frozen=True, slots=True)
class FindTouched:
    """Find the windows that points after ingest `done`, up to `last`, have come into."""

    uri: str
    paths: tuple[str, ...]
    done: int
    last: int
    touch: Touch = MINUTES

    def run(self) -> pa.Table:
        """Return each window once, with the first ingest that came into it."""
        found: list[pa.Table] = []
        touch, wanted = self.touch, Wanted(self.done, self.last)
        for batch in readings(self.uri, self.paths, [*SERIES, "time_ns", "ingest"], wanted):
            if touch.only is not None:
                batch = batch.filter(pa.array(series_places(batch, touch.only) >= 0))
            number = np.floor_divide(batch.column("time_ns").to_numpy(), touch.width_ns)
            names = [batch.column(name).cast(pa.string()) for name in touch.keys]
            cells = [*names, pa.array(number), batch.column("ingest")]
            found.append(touch.firsts([pa.Table.from_arrays(cells, schema=touch.schema)]))
            if sum(part.num_rows for part in found[1:]) > _MERGE_ROWS:
                found = [touch.firsts(found)]
        return touch.firsts(found)


@dataclass(frozen=True, slots=True)
class SumHours:
    """Sum up the touched windows of the hours `first` to `last` (since 1970, both included).

    Points of ingests after `ingest` are for the next rollup, and not in it.

    `touched` (as MINUTES has them) names them; points of other devices than its are not even read.
    """

    uri: str
    paths: tuple[str, ...]
    first: int
    last: int
    ingest: int
    touched: pa.Table

    def run(self) -> pa.Table:
        """Return the windows, schema WINDOWS."""
        series = self.touched.select(SERIES).group_by(SERIES).aggregate([])
        maker = RowMaker(series)
        rows = SortedRows(maker.lanes)
        with closing(maker), closing(rows):
            for batch in readings(self.uri, self.paths, INPUT, self._wanted()):
                rows.add(maker.rows(batch))
            due = {width: self._due(maker, ns) for width, ns in WIDTHS_NS.items()}
            parts = [WINDOWS.empty_table()]
            for width, found in windows_of(rows.pieces()):
                wanted = found[np.isin(_keys(found["series"], found["number"]), due[width])]
                if len(wanted):
                    parts.append(as_windows(wanted, width, maker.names, maker.texts))
            return pa.concat_tables(parts)

    def _wanted(self) -> Wanted:
        times_ns = self.first * _HOUR_NS, (self.last + 1) * _HOUR_NS - 1
        devices = pc.unique(self.touched.column("device"))
        return Wanted(-1, self.ingest, times_ns, devices)

    def _due(self, maker: RowMaker, width_ns: int) -> Ints:
        """Return the windows of one width that touched minutes lie in."""
        number = np.floor_divide(self.touched.column("minute").to_numpy(), width_ns // _MINUTE_NS)
        series = [maker.series_of(batch) for batch in self.touched.to_batches()]
        return np.unique(_keys(np.concatenate([np.empty(0, np.int64), *series]), number))


def _keys(series: Ints, number: Ints) -> Ints:
    """Return one number for each window of a width; the minutes of an int64 of ns are below 2**28."""
    return (series.astype(np.int64) << 30) + number + (1 << 29)
