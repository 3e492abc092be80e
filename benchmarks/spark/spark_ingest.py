"""Points per second from a JetStream stream into the history tables, beside the obvious way.

Modelled: one hub stream, frames of 200 points (four series at 1 Hz) from ten devices, all there at
once. Reading alone, ingest (decode, Parquet, commit) and rollup, in one local session of two cores
whose start is given apart. The obvious way is an ordered consumer of nats-py, each message decoded
to Point objects, and a data frame appended to a Delta table every so often; it gets the same
messages, fewer of them. Not covered: many small messages, late data, object stores.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from pathlib import Path

import nats
import pandas as pd  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from backhaul_codec import Point, decode, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from backhaul_spark.ingest.stream import IngestQuery
from backhaul_spark.rollup.rollup import Rollup, run_on
from backhaul_spark.session import spark_session
from backhaul_spark.source.jetstream_source import JetStreamSource
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least, report
from benchmarks.link.plain_link import plain_server
from benchmarks.process_tree import ProcessTree

STREAM, SUBJECT = "UP_00", "up.*.f.battery"
DEVICES, POINTS_A_FRAME, BATCHES = 10, 200, 5
FIRST_NS = 1_750_000_000_000_000_000
NAIVE_FRAMES = 400
AIM = at_least(1_000_000)


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, return the figures; under a minute when quick."""
    frames_a_device = 1000 if quick else 5000
    bodies = _frames(frames_a_device)
    with scratch.directory("spark-ingest") as directory:
        return asyncio.run(_measure(directory, bodies))


async def _measure(directory: Path, bodies: list[bytes]) -> dict[str, object]:
    count = len(bodies) * DEVICES
    async with plain_server(directory, "bench-hub", sync_interval="2m") as url:
        await _fill(url, bodies)
        naive = await _naive(url, directory / "naive")
        before = time.perf_counter()
        spark = await asyncio.to_thread(spark_session, "bench")
        start_s = time.perf_counter() - before
        try:
            return await asyncio.to_thread(_spark, spark, url, directory, count, start_s, naive)
        finally:
            spark.stop()


def _spark(
    spark: SparkSession, url: str, directory: Path, count: int, start_s: float, naive: float
) -> dict[str, object]:
    points = count * POINTS_A_FRAME
    messages_s = _read(spark, url, "messages")
    points_s = _read(spark, url, "points")
    tree = ProcessTree(os.getpid())
    tree.look()
    before_s = tree.cpu_s
    batches = _ingest(spark, url, str(directory / "tables"), count)
    tree.look()
    core_s = tree.cpu_s - before_s
    # The first batch of a session compiles plans and starts workers: a service pays it once.
    steady = points / BATCHES * (BATCHES - 1) / sum(batches[1:])
    before = time.perf_counter()
    rollup = Rollup(str(directory / "tables"), SYSTEM_CLOCK, run_on(spark)).run()
    rollup_s = time.perf_counter() - before
    note = f"{points:,} points in {count:,} messages"
    return report(
        "Spark: from the stream into the tables",
        [
            Figure("read messages only", count / messages_s, "messages/s", note=note),
            Figure("read and decode only", points / points_s, "points/s"),
            Figure("ingest", steady, "points/s", AIM, "without the first batch; floor 200,000"),
            Figure("ingest, with the first batch", points / sum(batches), "points/s"),
            Figure("ingest, a core", points / core_s, "points/core-s", note="driver, JVM, workers"),
            Figure("obvious way", naive, "points/s", note="nats-py, row by row, pandas, Delta"),
            Figure("ingest against it", steady / naive, "times"),
            Figure("rollup", points / rollup_s, "points/s", note=f"{rollup.created:,} windows"),
            Figure("start of the session", start_s, "s"),
            Figure("first batch", batches[0], "s"),
        ],
    )


def _read(spark: SparkSession, url: str, what: str) -> float:
    """Return the seconds that a read of the whole stream takes; a first one warms up."""
    spark.dataSource.register(JetStreamSource)
    frame = spark.read.format("jetstream").options(servers=url, format=what).load()
    seconds = []
    for _ in range(2):
        before = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - before)
    return seconds[-1]


def _ingest(spark: SparkSession, url: str, root: str, count: int) -> list[float]:
    """Ingest the whole stream in BATCHES batches; return the seconds of each, checked."""
    ends: list[float] = []
    outcomes: list[BatchOutcome] = []

    def said(outcome: BatchOutcome) -> None:
        ends.append(time.perf_counter())
        outcomes.append(outcome)

    options = {"servers": url, "maxMessages": str(-(-count // BATCHES))}
    before = time.perf_counter()
    IngestQuery(spark, Ingest(root, SYSTEM_CLOCK), options, SYSTEM_CLOCK, said).run(None)
    held = DeltaTable(f"{root}/points").count()
    if held != count * POINTS_A_FRAME or len(outcomes) != BATCHES:
        raise BenchmarkError(f"{held} points in the table after {len(outcomes)} batches")
    return [end - start for start, end in zip([before, *ends], ends, strict=False)]


async def _fill(url: str, bodies: list[bytes]) -> None:
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=[SUBJECT], allow_direct=True)
    for device in range(DEVICES):
        for body in bodies:
            await jetstream.publish_async(f"up.VID-{device:03}.f.battery", body)
        await jetstream.publish_async_completed()
    await client.close()


async def _naive(url: str, table: Path) -> float:
    """Return the points per second of the obvious way."""
    client = await nats.connect(url)
    subscription = await client.jetstream().subscribe(SUBJECT, stream=STREAM, ordered_consumer=True)
    rows: list[dict[str, object]] = []
    before = time.perf_counter()
    for number in range(NAIVE_FRAMES):
        message = await subscription.next_msg(timeout=10)
        device = message.subject.split(".")[1]
        decoded = decode(message.data)
        rows += [
            {
                "device": device,
                "seq": decoded.seq,
                "node": point.node,
                "type": point.type,
                "time": point.time,
                "value": point.value,
            }
            for point in decoded.points
        ]
        if number % 100 == 99:
            write_deltalake(str(table), pd.DataFrame(rows), mode="append")
            rows.clear()
    seconds = time.perf_counter() - before
    await client.close()
    return NAIVE_FRAMES * POINTS_A_FRAME / seconds


def _frames(count: int) -> list[bytes]:
    dice = random.Random(1)
    bodies = []
    passes = POINTS_A_FRAME // 4
    for seq in range(1, count + 1):
        points = []
        for index in range((seq - 1) * passes, seq * passes):
            at = FIRST_NS + index * 1_000_000_000
            points += [
                Point("battery", "soc", at, round(80 + math.sin(index / 900), 2)),
                Point("battery", "temp", at, round(dice.gauss(30, 2), 1)),
                Point("battery", "current", at, dice.gauss(0, 50)),
                Point("battery", "cycles", at, float(index // 10_000)),
            ]
        bodies.append(encode_frame(points, epoch=1, seq=seq))
    return bodies
