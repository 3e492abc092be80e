"""Six hours, and all, of one series of many that came together: `history`, and DuckDB on the same table.

The table is written by the code of ingest, in frames of 200 readings, and compacted as `maintain` does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.decode.points import partition_days
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.part_writer import PartWriter, TaskReport
from backhaul_spark.tables.schemas import POINTS_TABLE
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from benchmarks.spark.points_batch import points_batch

SERIES = 24
FULL_DAYS, QUICK_DAYS = 24, 2
DAY_S, STRETCH_S, FRAME = 86_400, 21_600, 200
T0 = datetime(2026, 1, 1, tzinfo=UTC)
AIM_TIMES = 2.0
_TRIES = 5


def run(*, quick: bool) -> dict[str, object]:
    """Measure, check, print the table and return the figures."""
    days = QUICK_DAYS if quick else FULL_DAYS
    with scratch.directory("one-series") as directory:
        root = str(directory / "tables")
        ingest = Ingest(root, SYSTEM_CLOCK)
        for first_s in range(0, days * DAY_S, STRETCH_S):
            _write(ingest, first_s)
        wide = _both(root, days)
        compact(root, POINTS_TABLE, SYSTEM_CLOCK)
        sorted_ = _both(root, days)
    figures = []
    for name, asked in (("six hours", 0), ("all", 1)):
        ours_s, duck_s = sorted_[asked]
        before = f"{wide[asked][0]:.3g} s; DuckDB {wide[asked][1]:.3g} s"
        figures += [
            Figure(f"{name}, history", ours_s, "s", note="in order", before=before),
            Figure(f"{name}, DuckDB", duck_s, "s", note="the same table"),
            Figure(f"{name}, ratio", ours_s / duck_s, "times", aim=at_most(AIM_TIMES)),
        ]
    title = f"one of {SERIES} series, {days * DAY_S * SERIES:,} points; before: not yet compacted"
    return report(title, figures)


def _both(root: str, days: int) -> list[tuple[float, float]]:
    """Return the seconds of both for six hours, and for all."""
    hours = T0 + timedelta(days=days // 2), T0 + timedelta(days=days // 2, hours=6)
    found = []
    with duckdb.connect() as duck:
        packages = Path(duckdb.__file__).parents[1]
        [extension] = packages.glob("duckdb_ext/extensions/*/*/delta.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
        duck.execute("SET TimeZone = 'UTC'")
        for start, end in (hours, (T0, T0 + timedelta(days=days))):
            ours_s, ours = _timed(lambda start=start, end=end: _history(root, start, end))  # type: ignore[misc]
            duck_s, theirs = _timed(lambda start=start, end=end: _duck(duck, root, start, end))  # type: ignore[misc]
            assert ours.num_rows == theirs.num_rows == (end - start).total_seconds()
            assert ours.column("value").to_pylist() == theirs.column("value_f64").to_pylist()
            found.append((ours_s, duck_s))
    return found


def _history(root: str, start: datetime, end: datetime) -> pa.Table:
    return History(root).ask(OneSeries("VID-001", "battery", "s07"), start, end, "raw").rows


def _duck(duck: duckdb.DuckDBPyConnection, root: str, start: datetime, end: datetime) -> pa.Table:
    question = f"""
        SELECT time, value_f64 FROM delta_scan('{root}/points')
        WHERE device = 'VID-001' AND node = 'battery' AND type = 's07' AND key = ''
          AND date BETWEEN ? AND ? AND time >= ? AND time < ? ORDER BY time
    """
    return duck.execute(question, [start.date(), end.date(), start, end]).fetch_arrow_table()


def _timed(ask: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    answer, took = ask(), []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begin)
    return float(np.median(took)), answer


def _write(ingest: Ingest, first_s: int) -> None:
    """Ingest a stretch of all series, in frames that come in turn."""
    number = ingest.tables.next_ingest
    writer = PartWriter(ingest.points_uri, number, SYSTEM_CLOCK.now_ns() // 1000)
    batch = _readings(first_s)
    writer.write(batch, partition_days(batch))
    ingest.commit("benchmark", number, [TaskReport(files=writer.close())])


def _readings(first_s: int) -> pa.RecordBatch:
    count = STRETCH_S * SERIES
    rows = np.arange(count, dtype=np.int64)
    frame = rows // FRAME
    seconds = first_s + frame // SERIES * FRAME + rows % FRAME
    time_ns = int(T0.timestamp()) * 1_000_000_000 + seconds * 1_000_000_000
    seq = first_s * SERIES // FRAME + frame + 1
    # Three decimals, as most sensors have, and in no two series alike.
    values = 50 + (seconds * 2_654_435_761 + frame % SERIES * 7_919) % 20_011 / 1000

    types = pa.array([f"s{number:02}" for number in range(SERIES)])
    series = pa.DictionaryArray.from_arrays(pa.array((frame % SERIES).astype(np.int32)), types)
    return points_batch(series, time_ns, values, seq, rows % FRAME)
