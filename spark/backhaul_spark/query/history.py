"""Answer for one series of one device, from the tables. No Spark, no JVM.

A question about one series reads a few files that partitions and statistics point to; delta-rs
and Arrow do that in a fraction of a second, where a Spark session alone takes four to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.state.point_text import shown
from backhaul_spark.columns import STAMP
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.decode.series import parse_series as parse_names
from backhaul_spark.errors import NothingFoundError, OptionError
from backhaul_spark.query.series_points import (
    PLACES,
    TIMELESS_DAY,
    VALUES,
    Asked,
    SeriesPoints,
)
from backhaul_spark.rollup.known_at import LENGTHS, rollups_known_at
from backhaul_spark.rollup.plan import points_from
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.tables.delta import committed_ingest, dataset_of, open_if_there, open_table
from backhaul_spark.tables.said_again import LETTER
from backhaul_spark.tables.schemas import POINTS_TABLE, ROLLUPS_TABLE

Resolution = Literal["raw", "1m", "1h", "1d"]
# The finest resolution that still gives a plot no more rows than it has pixels, at 1 Hz.
RAW_UP_TO = timedelta(hours=6)
MINUTES_UP_TO = timedelta(days=10)


@dataclass(frozen=True, slots=True)
class Answer:
    """The history of a series.

    `rows` for raw: time, value (double), whole (the same, exact, of integers), text; else: window_start, count, min, max, mean, first,
    last, texts, first_text, last_text, version, state. Ascending by time. `rolled_up_to` and `ingested`
    are ingest numbers: where they differ, the rollups have not seen everything yet.
    """

    series: OneSeries
    resolution: Resolution
    start: datetime
    end: datetime
    rows: pa.Table
    untimed: int
    rolled_up_to: int
    ingested: int


def parse_series(device: str, text: str) -> OneSeries:
    """Read `node.type` or `node.type.key`; names with other signs percent-encoded, as in subjects."""
    return OneSeries(device, *parse_names(text, "--series"))


def parse_time(option: str, text: str | None) -> datetime | None:
    """Read an ISO 8601 time or date; without an offset it is UTC."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(option, text, "a time such as 2026-01-31T12:00:00Z") from error
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def choose_resolution(start: datetime, end: datetime) -> Resolution:
    """Return the resolution for a span of time."""
    if end - start <= RAW_UP_TO:
        return "raw"
    return "1m" if end - start <= MINUTES_UP_TO else "1h"


class History:
    """The tables under one root, opened for questions."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._points = open_table(root, POINTS_TABLE)
        self._series = SeriesPoints(root, self._points)
        self._rollups = open_if_there(root, ROLLUPS_TABLE)
        # Of days before this one retention has taken the points; their rollups stay.
        self._kept_from = points_from(self._points)

    def ask(
        self,
        series: OneSeries,
        start: datetime | None = None,
        end: datetime | None = None,
        resolution: Resolution | Literal["auto"] = "auto",
        known_at: datetime | None = None,
    ) -> Answer:
        """Return a series from the tables, as it is or was at `known_at`; without bounds, all.

        Raises:
            NotKeptError: superseded rollups are kept since a later time than `known_at` only.
            NothingFoundError: the series has no points, or none in that time.
            TableMissingError: a rollup is asked for and there was none yet.
        """
        if start is None or end is None:
            first, last = self._extent(series)
            start, end = start or first, end or last + timedelta(microseconds=1)
        if start >= end:
            raise OptionError("--from", start.isoformat(), f"a time before {end.isoformat()}")
        chosen = self._choose(start, end) if resolution == "auto" else resolution
        if chosen == "raw":
            rows = self._raw(series, start, end, known_at)
        else:
            rows = self._windows(series, start, end, chosen, known_at)
        if not rows.num_rows:
            self._extent(series)  # which says so if there are none at any time
            raise NothingFoundError(f"{series} of {series.device} between {start} and {end}")
        rolled = self._rollups.transaction_version(ROLLUP_APP) if self._rollups else None
        ingested = committed_ingest(self._points)
        untimed = self._untimed(series)
        return Answer(series, chosen, start, end, rows, untimed, rolled or 0, ingested)

    def finest(
        self, series: OneSeries, start: datetime | None, end: datetime | None, rows_max: int
    ) -> Resolution:
        """Return the finest resolution in which a series has at most so many rows; hours in the end.

        Raises:
            NothingFoundError: the series has no points.
        """
        if start is None or end is None:
            first, last = self._extent(series)
            start, end = start or first, end or last + timedelta(microseconds=1)
        whole = not self._kept_from or start.astimezone(UTC).date() >= self._kept_from
        asked = Asked(series, _TIMED, _us(start), _us(end), deleted=True)
        if self._rollups is None or (whole and self._series.count(asked) <= rows_max):
            return "raw"
        return "1m" if (end - start) / timedelta(minutes=1) <= rows_max else "1h"

    def _choose(self, start: datetime, end: datetime) -> Resolution:
        if self._rollups is None:
            return "raw"  # slower, and right
        chosen = choose_resolution(start, end)
        if chosen == "raw" and self._kept_from and start.astimezone(UTC).date() < self._kept_from:
            return "1m"
        return chosen

    def _extent(self, series: OneSeries) -> tuple[datetime, datetime]:
        """Return first time and last time; of days alone, where no point has a believable time.

        Raises:
            NothingFoundError: the series has no points.
        """
        times = self._series.extent_us(Asked(series, _TIMED, deleted=True))
        old = self._without_points(["window_start"], series.filter()).column("window_start")
        hours = pc.min_max(old.cast(pa.int64())).as_py()
        if hours["min"] is not None:
            last_us = hours["max"] + _LAST_OF_HOUR // timedelta(microseconds=1)
            times = _hull(times, (hours["min"], last_us))
        if times is None:
            times = self._series.extent_us(Asked(series, _UNTIMED, deleted=True))
        if times is None:
            raise NothingFoundError(
                f"no points of {series} of {series.device}", self._known(series)
            )
        return _moment(times[0]), _moment(times[1])

    def _untimed(self, series: OneSeries) -> int:
        """Return how many points have no believable time. They stand in a partition of their own."""
        return self._series.count(Asked(series, _UNTIMED, deleted=True))

    def _without_points(self, columns: list[str], wanted: Any) -> pa.Table:
        """Return hours of days whose points retention has taken."""
        if self._rollups is None or self._kept_from is None:
            return ROLLUPS_TABLE.schema.empty_table().select(columns)
        old = (pc.field("width") == "1h") & (pc.field("date") < self._kept_from)
        rollups = dataset_of(self._rollups, ROLLUPS_TABLE)
        return rollups.to_table(columns=columns, filter=old & wanted)

    def _raw(
        self, series: OneSeries, start: datetime, end: datetime, known_at: datetime | None
    ) -> pa.Table:
        days = start.astimezone(UTC).date(), end.astimezone(UTC).date()
        # Of those without a believable time it is said how many there are.
        days = max(days[0], _TIMED[0]), days[1]
        known_us = None if known_at is None else _us(known_at)
        asked = Asked(series, days, _us(start), _us(end), known_us)
        rows = self._series.rows(asked)
        ordered = _by_time(rows)
        if ordered is None:
            ordered = _by_place(self._series.rows(asked, (*VALUES, *PLACES)))
        rows = _once(ordered)
        return pa.table(
            {
                "time": _floor(rows.column("time_ns")),
                "value": _as_double(rows),
                "whole": _as_whole(rows),
                "text": rows.column("value_text"),
            }
        )

    def _windows(
        self,
        series: OneSeries,
        start: datetime,
        end: datetime,
        width: Resolution,
        known_at: datetime | None,
    ) -> pa.Table:
        begin = pc.field("window_start")
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        wanted = (
            (pc.field("width") == width)
            & (pc.field("date") >= start.date())
            & (pc.field("date") <= end.date())
            & series.filter()
            & (begin >= _stamp(_begin(start, width)))
            & (begin < _stamp(end))
        )
        if known_at is None:
            table = self._rollups or open_table(self._root, ROLLUPS_TABLE)
            rows = dataset_of(table, ROLLUPS_TABLE).to_table(filter=wanted)
        else:
            rows = rollups_known_at(self._root, known_at, wanted)
        return rows.select(
            [
                *("window_start", "count", "min", "max", "mean", "first", "last", "nans"),
                *("texts", "first_text", "last_text", "version", "state"),
            ]
        ).sort_by("window_start")

    def _known(self, series: OneSeries) -> str:
        """Name the series that there are instead."""
        of_device = pc.field("device") == series.device
        columns = ["node", "type", "key"]
        rows = dataset_of(self._points).to_table(columns=columns, filter=of_device)
        rows = pa.concat_tables([rows, self._without_points(columns, of_device)])
        if not rows.num_rows:
            return f"the tables hold nothing of {series.device}; see `backhaul-spark completeness`"
        names = rows.group_by(columns).aggregate([]).to_pylist()
        # Names as vehicles gave them stand in one line of an error.
        known = sorted(shown(str(OneSeries(series.device, **row))) for row in names if row["node"])
        return f"{series.device} has: {', '.join(known[:20])}" + (" ..." if len(known) > 20 else "")


_UNTIMED = (TIMELESS_DAY, TIMELESS_DAY)
_TIMED = (TIMELESS_DAY + timedelta(days=1), date.max)
_LAST_OF_HOUR = LENGTHS["1h"] - timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _stamp(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, STAMP)


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _hull(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _floor(time_ns: pa.ChunkedArray) -> pa.Array:
    """Return times in µs, as the column `time` has them: never later than they were."""
    return pa.array(np.floor_divide(time_ns.to_numpy(), 1000)).cast(STAMP)


def _by_time(rows: pa.Table) -> pa.Table | None:
    """Return the rows by time, None where two have one time."""
    time_ns = rows.column("time_ns").to_numpy()
    if (np.diff(time_ns) > 0).all():
        return rows
    order = np.argsort(time_ns, kind="stable")
    return None if (np.diff(time_ns[order]) == 0).any() else rows.take(pa.array(order))


def _by_place(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(n, "ascending") for n in ("time_ns", "seq", "index", "epoch")])


def _once(rows: pa.Table) -> pa.Table:
    """Return rows in order without repeats of letter `p`: the readings that rollups count.

    Of those that are the same the frame's counts, else the first (rollup/windows.py, `repeats`).
    """
    live = pc.equal(rows.column("letter"), LETTER).to_numpy()
    if not live.any():
        return rows
    time_ns = rows.column("time_ns").to_numpy()
    near = np.flatnonzero(np.isin(time_ns, time_ns[live]))
    some = rows.take(pa.array(near))
    columns = [some.column(name) for name in ("time_ns", "dtype", "value_i64", "value_text")]
    # Doubles by their bits: NaN is NaN again, and 0.0 is not -0.0.
    columns.append(some.column("value_f64").combine_chunks().view(pa.int64()))
    said = list(zip(*(column.to_pylist() for column in columns), strict=True))
    kept = np.ones(len(live), bool)
    known = {key for row, key in zip(near.tolist(), said, strict=True) if not live[row]}
    for row, key in zip(near.tolist(), said, strict=True):
        if live[row]:
            kept[row] = key not in known
            known.add(key)
    return rows.filter(pa.array(kept))


def _as_double(rows: pa.Table) -> pa.ChunkedArray:
    """Return the numbers as doubles, null for text. Integers beyond 2^53 are rounded."""
    doubles = rows.column("value_f64")
    if rows.column("value_i64").null_count == rows.num_rows:
        return doubles
    return pc.coalesce(doubles, _of_integers(rows, pa.float64()))


def _as_whole(rows: pa.Table) -> pa.ChunkedArray:
    """Return the integers as they were recorded, null for all else."""
    return _of_integers(rows, pa.decimal128(20, 0))


def _of_integers(rows: pa.Table, type_: pa.DataType) -> pa.ChunkedArray:
    if rows.column("value_i64").null_count == rows.num_rows:
        return pa.chunked_array([pa.nulls(rows.num_rows, type_)])
    bits = rows.column("value_i64").combine_chunks()
    signed = bits.cast(type_, safe=False)
    unsigned = bits.view(pa.uint64()).cast(type_, safe=False)
    return pc.if_else(pc.equal(rows.column("dtype"), 3), unsigned, signed)


def _begin(moment: datetime, width: Resolution) -> datetime:
    """Return the beginning of the window that a moment lies in."""
    return moment - (moment - _EPOCH) % LENGTHS[width]
