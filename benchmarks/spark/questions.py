"""Seconds to answer questions about a fleet of trucks, on our tables and on plain Parquet, by DuckDB and by Spark.

4,000 trucks read eleven series for three days, each every twenty minutes: 9.5 M readings. TSBS reads every ten seconds, which
would be 1.1 G. Their readings come as frames of an hour, and so lie in plain Parquet: in the order of arrival, in one
file for each six hours, as pyarrow writes it. Our table of the same rows is written by the code of ingest, and compacted as
`maintain` does it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.decode.points import partition_days
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.questions.ask import InDuckDB, InSpark, ask
from backhaul_spark.questions.catalogue import Question, questions
from backhaul_spark.questions.settings import QuestionsSettings
from backhaul_spark.questions.views import About
from backhaul_spark.session import spark_session
from backhaul_spark.tables import by_series, compaction
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.part_writer import PartWriter, TaskReport
from backhaul_spark.tables.schemas import POINTS_TABLE, TableSpec
from benchmarks import scratch
from benchmarks.figures import Figure, at_least, report
from benchmarks.spark.points_batch import points_batch
from tests.support.trucks import SERIES, readings, trucks

FULL, QUICK = (4000, 3, 1200), (100, 1, 600)
"""Trucks, days, seconds between two readings of a series."""
T0_S = 1_767_225_600
DAY_S, STRETCH_S, FRAME_S = 86_400, 21_600, 3600
AIM_TIMES = 3.0
DEVICE_FIRST = ("device", "node", "type", "key")
SIGNAL_FIRST = ("node", "type", "key", "device")
# Their answers are not computed from readings.
_LEFT_OUT = frozenset({"energy-per-distance"})


def run(*, quick: bool) -> dict[str, object]:
    """Measure, check, print the table and return the figures."""
    count, days, step_s = QUICK if quick else FULL
    with scratch.directory("questions") as directory:
        plain = directory / "plain"
        roots = {"by vehicle": directory / "vehicle", "by series": directory / "series"}
        rows = _write(directory / "vehicle", plain, count, days, step_s)
        shutil.copytree(directory / "vehicle", directory / "series")
        for (name, root), order in zip(roots.items(), (DEVICE_FIRST, SIGNAL_FIRST), strict=True):
            begin = time.process_time()
            with (
                mock.patch.object(by_series, "NAMES", order),
                mock.patch.object(compaction, "NAMES", order),
            ):
                compact(str(root), POINTS_TABLE, SYSTEM_CLOCK)
            print(
                f"{name}: compacted in {time.process_time() - begin:.0f} s of processor time",
                flush=True,
            )
        now_ns = (T0_S + days * DAY_S) * 1_000_000_000
        took = {
            "DuckDB": _all(
                _Plain(plain), {n: InDuckDB(str(r)) for n, r in roots.items()}, now_ns, 2
            )
        }
        spark = spark_session("questions")
        try:
            frame = spark.read.parquet(str(plain))
            theirs = _PlainSpark(spark, frame)
            ours = {name: InSpark(spark, str(root)) for name, root in roots.items()}
            took["Spark"] = _all(theirs, ours, now_ns, 1)
        finally:
            spark.stop()
    figures = []
    for engine, by_layout in took.items():
        for name in by_layout["plain"]:
            s = {layout: times[name] for layout, times in by_layout.items()}
            note = f"plain Parquet {s['plain']:.3g} s, by vehicle {s['by vehicle']:.3g} s"
            figures.append(Figure(f"{engine}, {name}", s["by series"], "s", note=note))
        worst = max(by_layout["by vehicle"], key=lambda each: by_layout["by vehicle"][each])
        gain = by_layout["by vehicle"][worst] / by_layout["by series"][worst]
        figures.append(
            Figure(
                f"{engine}, worst, gain",
                gain,
                "times",
                aim=at_least(AIM_TIMES),
                note=f"{worst}, by series over by vehicle",
            )
        )
        total = {layout: sum(times.values()) for layout, times in by_layout.items()}
        note = "all together, by series over plain Parquet"
        figures.append(
            Figure(f"{engine}, gain", total["plain"] / total["by series"], "times", note=note)
        )
    title = f"{count:,} trucks, {days} days, every {step_s} s: {rows:,} readings; seconds of each question, files in the order of series"
    return report(title, figures)


class _Plain(InDuckDB):
    """Files in a directory, and no table."""

    def __init__(self, directory: Path) -> None:
        super().__init__("")
        self._files = directory / "*.parquet"

    def _table(self, spec: TableSpec) -> None:
        self._duck.execute(f"CREATE VIEW {spec.name} AS SELECT * FROM '{self._files}'")


class _PlainSpark(InSpark):
    def __init__(self, spark: Any, frame: Any) -> None:
        super().__init__(spark, "")
        self._frame = frame

    def ask(self, sql: str, views: dict[str, str], tables: tuple[str, ...]) -> pa.Table:
        self._frame.createOrReplaceTempView("points")
        self._known |= {"points": None}
        return super().ask(sql, views, tables)


def _all(
    plain: InDuckDB | InSpark, ours: dict[str, Any], now_ns: int, tries: int
) -> dict[str, dict[str, float]]:
    """Return by layout and question the seconds of its answer; the answers are the same."""
    found: dict[str, dict[str, float]] = {}
    answers: dict[str, pa.Table] = {}
    for layout, where in {"plain": plain, **ours}.items():
        with where:
            _ask(where, questions()["last-location"], now_ns)  # compiled, and files in memory
            for name, question in questions().items():
                if name in _LEFT_OUT:
                    continue
                took, answer = _timed(partial(_ask, where, question, now_ns), tries)
                found.setdefault(layout, {})[name] = took
                print(f"{type(where).__name__} {layout} {name} {took:.3f} s", flush=True)
                first = answers.setdefault(name, answer)
                assert _alike(first, answer), (layout, name)
    return found


def _ask(where: InDuckDB | InSpark, question: Question, now_ns: int) -> pa.Table:
    return ask(where, question, QuestionsSettings(), About(source="points"), now_ns)


def _timed(ask_it: Callable[[], pa.Table], tries: int) -> tuple[float, pa.Table]:
    took = []
    answer = None
    for _ in range(tries):
        begin = time.perf_counter()
        answer = ask_it()
        took.append(time.perf_counter() - begin)
    return min(took), answer


def _alike(one: pa.Table, other: pa.Table) -> bool:
    if one.num_rows != other.num_rows or one.column_names != other.column_names:
        return False
    return all(
        np.allclose(one.column(n).to_numpy(), other.column(n).to_numpy(), equal_nan=True)
        if pa.types.is_floating(one.column(n).type)
        else one.column(n).equals(other.column(n))
        for n in one.column_names
    )


def _write(root: Path, plain: Path, count: int, days: int, step_s: int) -> int:
    """Write the readings into a table, and as plain Parquet; return how many."""
    fleet = trucks(count)
    capacity_kg = np.array([truck.load_capacity for truck in fleet])
    names = pa.array([truck.device for truck in fleet])
    plain.mkdir()
    rows = 0
    ingest = Ingest(str(root), SYSTEM_CLOCK)
    for at, batch in enumerate(_batches(names, capacity_kg, fleet, days, step_s)):
        rows += batch.num_rows
        number = ingest.tables.next_ingest
        writer = PartWriter(ingest.points_uri, number, SYSTEM_CLOCK.now_ns() // 1000)
        writer.write(batch, partition_days(batch))
        ingest.commit("benchmark", at, [TaskReport(files=writer.close())])
        table = pa.table(batch)
        days_of = table.column("time").cast(pa.date32())
        pq.write_table(table.append_column("date", days_of), plain / f"{at:04}.parquet")
    return rows


def _batches(
    names: pa.Array, capacity_kg: Any, fleet: list[Any], days: int, step_s: int
) -> Iterator[pa.RecordBatch]:
    yield _said(names, fleet)
    for first_s in range(0, days * DAY_S, STRETCH_S):
        yield _read(names, capacity_kg, first_s, step_s)


def _read(names: pa.Array, capacity_kg: Any, first_s: int, step_s: int) -> pa.RecordBatch:
    """Return what all trucks read in a stretch: frames of an hour, truck after truck."""
    count, passes = len(names), FRAME_S // step_s
    shape = STRETCH_S // FRAME_S, count, passes
    frame, truck, pass_ = (each.ravel() for each in np.indices(shape))
    seconds = T0_S + first_s + frame * FRAME_S + pass_ * step_s
    columns = readings(truck, seconds, capacity_kg[truck])
    per_frame = passes * len(SERIES)
    values = np.stack([columns[name] for name in SERIES], axis=-1).ravel()
    series = np.tile(np.arange(len(SERIES)), len(truck))
    at_ns = np.repeat(seconds, len(SERIES)) * 1_000_000_000
    seq = np.repeat(2 + (first_s // FRAME_S) + frame, len(SERIES))
    index = np.arange(len(values)) % per_frame
    return points_batch(
        _named(series, [name.split(".")[1] for name in SERIES]),
        at_ns,
        values,
        seq,
        index,
        devices=pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(truck, len(SERIES)).astype(np.int32)), names
        ),
        nodes=_named(series, [name.split(".")[0] for name in SERIES]),
    )


def _named(series: Any, names: list[str]) -> pa.DictionaryArray:
    known = sorted(set(names))
    places = np.array([known.index(name) for name in names], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(places[series]), pa.array(known))


def _said(names: pa.Array, fleet: list[Any]) -> pa.RecordBatch:
    """Return what all trucks say of themselves at the beginning."""
    kinds = ("driver", "firmware", "fleet", "load_capacity", "model", "nominal_fuel_use")
    said = [getattr(truck, kind) for truck in fleet for kind in kinds]
    count = len(said)
    kind = np.tile(np.arange(len(kinds)), len(fleet))
    texts = [each if isinstance(each, str) else None for each in said]
    numbers = [each if isinstance(each, float) else None for each in said]
    batch = points_batch(
        _named(kind, list(kinds)),
        np.full(count, T0_S * 1_000_000_000),
        np.zeros(count),
        np.ones(count, np.int64),
        kind,
        devices=pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(np.arange(len(fleet)), len(kinds)).astype(np.int32)), names
        ),
        nodes=_named(np.zeros(count, np.int64), ["vehicle"]),
    )
    dtype = pa.array([1 if text is None else 4 for text in texts], pa.int16())
    own = {
        "dtype": dtype,
        "value_f64": pa.array(numbers, pa.float64()),
        "value_text": pa.array(texts, pa.string()).dictionary_encode(),
    }
    columns = [
        own.get(name, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


if __name__ == "__main__":
    run(quick=False)
