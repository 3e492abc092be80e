"""Read one series of one device out of the files of points and rollups, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.errors import QuestionError
from backhaul_spark.rollup.read import Wanted, readings
from backhaul_spark.rollup.rows import INPUT
from backhaul_spark.serve.plan import DAY_US, WIDTHS, BucketPlan
from backhaul_spark.serve.view import View, chosen, day_of
from backhaul_spark.tables.delta import table_uri
from backhaul_spark.tables.files import subtree
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE, POINTS_TABLE, ROLLUPS_TABLE, TableSpec

TIMELESS_DAY = date(1970, 1, 1)
_FIGURES = (
    *("window_start", "count", "min", "max", "texts"),
    *("first_text", "last_text", "first_time_ns", "last_time_ns"),
)


class AnswerTime:
    """The time that one question may take, from the making of this on."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end_s = clock.monotonic_s() + seconds

    def check(self) -> None:
        """Raise QuestionError where the time is over."""
        if self._clock.monotonic_s() > self._end_s:
            raise QuestionError(
                f"this takes longer than {self._seconds:g} s",
                "ask for a shorter time; if rollups are far behind: backhaul-spark rollup",
            )


class SeriesReader:
    """Reads one series."""

    def __init__(self, view: View, series: OneSeries, budget: AnswerTime) -> None:
        self._view = view
        self.series = series
        self._budget = budget
        self._uri = table_uri(view.root, POINTS_TABLE.name)

    def files(self, from_us: int, to_us: int, after: int = -1) -> pa.Table:
        """Return the files of points that hold some of a range (µs, the end not included) of ingests after one."""
        files = chosen(self._view.points, self.series.device, _days(from_us, to_us))
        wanted = (pc.field("min.time") < to_us) & (pc.field("max.time") >= from_us)
        wanted &= (pc.field("max.ingest") > after) & (pc.field("date") > TIMELESS_DAY)
        return files.filter(wanted)

    def points(
        self, files: pa.Table, from_us: int, to_us: int, after: int = -1, last: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield readings of a range (columns INPUT) from some files, of ingests after one, up to another or all."""
        wanted = Wanted(
            after,
            self._view.ingested if last is None else last,
            (from_us * 1000, to_us * 1000 - 1),
            pa.array([self.series.device]),
        )
        for path in files.column("path").to_pylist():
            self._budget.check()
            for batch in readings(self._uri, [path], INPUT, wanted):
                self._budget.check()
                yield batch

    def without_time(self, from_us: int, to_us: int) -> Iterator[pa.RecordBatch]:
        """Yield readings that stand among those without a believable time, though their stamps are of a range."""
        files = chosen(self._view.points, self.series.device, (TIMELESS_DAY, TIMELESS_DAY))
        yield from self.points(files, from_us, to_us)

    def windows(self, plan: BucketPlan) -> pa.Table:
        """Return the rollups' windows of a plan's level, by time: columns as in the table, of _FIGURES.

        Raises:
            OSError, pa.ArrowException: a file of the table cannot be read.
        """
        days = _days(plan.start_us, plan.end_us)
        found = self._windows(WIDTHS[plan.level], days, None)
        if plan.level == "day":
            # A day that was rolled up before there were windows of days has hours alone.
            known = found.column("window_start").cast(pa.int64()).to_numpy() // DAY_US
            found = pa.concat_tables([found, self._windows("1h", days, known)])
        starts = found.column("window_start").cast(pa.int64())
        inside = pc.and_(pc.greater_equal(starts, plan.start_us), pc.less(starts, plan.end_us))
        return found.filter(inside).sort_by("window_start")

    def _windows(self, width: str, days: tuple[date, date], without: np.ndarray | None) -> pa.Table:
        files = chosen(self._view.rollups, self.series.device, days, width=width)
        if without is not None:
            number = files.column("date").cast(pa.int32()).to_numpy()
            files = files.filter(pa.array(~np.isin(number, without)))
        return self._read(ROLLUPS_TABLE, files, self.series.filter(), _FIGURES)

    def hours(self, from_us: int, to_us: int) -> list[tuple[int, str]]:
        """Return the beginning (µs since 1970) and the state of the device's judged hours of a range."""
        files = chosen(self._view.reports, self.series.device, _days(from_us, to_us))
        wanted = pc.field("device") == self.series.device
        rows = self._read(HOUR_REPORTS_TABLE, files, wanted, ("hour", "state"))
        hours = rows.column("hour").cast(pa.int64()).to_pylist()
        return sorted(zip(hours, rows.column("state").to_pylist(), strict=True))

    def _read(
        self, spec: TableSpec, files: pa.Table, wanted: pc.Expression, columns: tuple[str, ...]
    ) -> pa.Table:
        self._budget.check()
        fields = [field for field in spec.schema if field.name not in spec.partition_by]
        found = ds.FileSystemDataset.from_paths(
            files.column("path").to_pylist(),
            schema=pa.schema(fields),
            format=ds.ParquetFileFormat(),
            filesystem=subtree(table_uri(self._view.root, spec.name)),
        )
        return found.to_table(columns=list(columns), filter=wanted)


def _days(from_us: int, to_us: int) -> tuple[date, date]:
    return day_of(from_us), day_of(max(from_us, to_us - 1))
