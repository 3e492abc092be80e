"""A year of one series at 1 Hz for a chart: by rollups and points, and by reading all its points.

The tables are written by the code of ingest and rollup. A server with an empty UP is asked each time, as always.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import write_deltalake

from backhaul_codec.protocol.history import PastQuestion
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.columns import STAMP
from backhaul_spark.decode.points import partition_days
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.serve import answers as answers_module
from backhaul_spark.serve.answers import HistoryAnswers
from backhaul_spark.serve.tail import TailReader
from backhaul_spark.serve.view import Tables
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.part_writer import PartWriter, TaskReport
from backhaul_spark.tables.schemas import HOUR_REPORTS_TABLE
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from benchmarks.spark.points_batch import points_batch
from tests.support.spark_server import HubServer

FULL_DAYS, QUICK_DAYS = 365, 30
DAY_S = 86_400
PIXELS = 1000
T0_US = 1_735_689_600_000_000  # 2025-01-01
AIM_S = 1.0
_TIMES = 7
_SPARE_S = 300
"""Readings that no rollup has summed up yet."""


def run(*, quick: bool) -> dict[str, object]:
    """Measure, check, print the table and return the figures."""
    days = QUICK_DAYS if quick else FULL_DAYS
    with scratch.directory("past") as directory:
        hub = HubServer(directory / "hub")
        hub.server.start()
        try:
            hub.make_stream()
            return _figures(directory, hub, days)
        finally:
            hub.server.stop()


def _figures(directory: Path, hub: HubServer, days: int) -> dict[str, Any]:
    root = str(directory / "tables")
    ingest = Ingest(root, SYSTEM_CLOCK)
    for first in range(0, days, 10):
        _write(ingest, first * DAY_S, min(10, days - first) * DAY_S)
    Rollup(root, SYSTEM_CLOCK, run_here).run()
    _report_hours(root, days)
    _write(ingest, days * DAY_S, _SPARE_S)
    tail = TailReader(endpoint_from(hub.options))
    answers = HistoryAnswers(Tables(root, str(directory / "checkpoint")), tail, SYSTEM_CLOCK)
    count = days * DAY_S + _SPARE_S
    question = PastQuestion(
        "VID-001", "battery", "soc", T0_US, T0_US + count * 1_000_000, points_max=PIXELS
    )
    first_s, _ = _timed(answers, question, count)
    again = [_timed(answers, question, count) for _ in range(_TIMES)]
    fast_s, fast = float(np.median([each for each, _ in again])), again[0][1]
    direct_s, direct = _directly(answers, question, count)
    assert fast["width_us"] == direct["width_us"]
    assert sum(reason == "explained" for _, _, reason in fast["gaps"]) == days
    assert all(fast[name] == direct[name] for name in ("t_us", "min", "max", "n"))
    day = PastQuestion(
        *("VID-001", "battery", "soc"),
        *(T0_US + (days - 1) * DAY_S * 1_000_000, T0_US + days * DAY_S * 1_000_000),
        points_max=PIXELS,
    )
    hour = PastQuestion(
        *("VID-001", "battery", "soc"),
        *(day.to_us - 3_600_000_000, day.to_us),
        points_max=4000,
    )
    others = {
        name: float(np.median([_timed(answers, each, size)[0] for _ in range(_TIMES)]))
        for name, each, size in (("day", day, DAY_S), ("hour", hour, 3600))
    }
    return report(
        f"{days} days of a series at 1 Hz, {count:,} points, for {PIXELS} pixels",
        [
            Figure("by rollups and points", fast_s, "s", aim=at_most(AIM_S), note=fast["level"]),
            Figure("the first question of a server", first_s, "s", note="opens the tables"),
            Figure("by all its points", direct_s, "s", note="the same buckets, bit for bit"),
            Figure("how many times faster", direct_s / fast_s, "times"),
            Figure("its last day", others["day"], "s", note="by the minute"),
            Figure("its last hour", others["hour"], "s", note="every reading"),
        ],
    )


def _directly(
    answers: HistoryAnswers, question: PastQuestion, count: int
) -> tuple[float, dict[str, Any]]:
    """Answer as where there are no rollups, and no bounds."""
    with (
        mock.patch.object(answers_module, "SCAN_ROWS_MAX", 1 << 40),
        mock.patch.object(answers_module, "ANSWER_S_MAX", 3600.0),
        mock.patch.object(answers._tables, "_rollups", return_value=(None, "")),
    ):
        return _timed(answers, question, count)


def _timed(
    answers: HistoryAnswers, question: PastQuestion, count: int
) -> tuple[float, dict[str, Any]]:
    start_s = time.perf_counter()
    said = answers.answer(question)
    took_s = time.perf_counter() - start_s
    assert sum(said["n"]) in (count, count + 60), (sum(said["n"]), count)
    return took_s, said


def _write(ingest: Ingest, first_s: int, seconds: int) -> None:
    """Ingest a reading a second, as the executors' code writes what it has decoded."""
    tables = ingest.tables
    number = tables.next_ingest
    writer = PartWriter(ingest.points_uri, number, SYSTEM_CLOCK.now_ns() // 1000)
    for begin in range(first_s, first_s + seconds, DAY_S):
        batch = _readings(begin, min(DAY_S, first_s + seconds - begin))
        writer.write(batch, partition_days(batch))
    files = writer.close()
    ingest.commit("benchmark", number, [TaskReport(files=files)])


def _report_hours(root: str, days: int) -> None:
    """Write the completeness reports of all hours: complete, but for one of each day."""
    hours = np.arange(days * 24, dtype=np.int64)
    stamps = pa.array(T0_US + hours * 3_600_000_000).cast(STAMP)
    states = np.where(hours % 24 == 5, "explained", "complete")
    count = len(hours)
    known: dict[str, Any] = {
        "device": pa.repeat(pa.scalar("VID-001"), count),
        "hour": stamps,
        "state": pa.array(states),
        "date": stamps.cast(pa.date32()),
        "run": pa.array(np.ones(count, np.int64)),
    }
    schema = HOUR_REPORTS_TABLE.schema
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in schema]
    write_deltalake(
        make_table(root, HOUR_REPORTS_TABLE),
        pa.Table.from_arrays(columns, schema=schema),
        mode="append",
    )


def _readings(first_s: int, count: int) -> pa.RecordBatch:
    seconds = np.arange(first_s, first_s + count, dtype=np.int64)
    time_ns = T0_US * 1000 + seconds * 1_000_000_000
    seq = seconds // 200 + 1
    # A day's wave, and noise that follows from the second: any peak is at a known place.
    noise = (seconds * 2_654_435_761 % 1_000_003) / 1_000_003
    values = 50 + 30 * np.sin(seconds * (2 * np.pi / DAY_S)) + noise

    types = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["soc"]))
    return points_batch(types, time_ns, values, seq, seconds % 200)
