"""The twin actor: rows a second, how soon an alert comes, processor time and memory.

Modelled: every device says two readings in a message, in turn; one in a hundred is hot in every other
round, so that alerts come all the time. First a backlog in batches as large as they come, then live
traffic at a trigger of 1 s; an alert's delay is from the vehicle's stamp, taken when its message is
published, to the driver having it (publishing it on is `sink`'s). Beside it the obvious way: Spark's
transformWithState with a key a device, on far fewer rows. Server, publisher and Spark share the
machine. Not covered: many lanes, replays from many devices at once, more than one machine.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.rules.config import plan_from
from backhaul_spark.rules.query import TwinQuery
from backhaul_spark.session import spark_session
from backhaul_spark.source.jetstream_source import JetStreamSource
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least, at_most, report
from benchmarks.link.plain_link import plain_server

_HOT_EVERY = 100
_BATCHES = 4
_WAIT_S = 300.0
_STEP_S = 0.05
_KEYS = 3_000
# One hot sample is enough: each hot round raises, each cool one clears.
_CONFIG = {"rules": {"temperature": {"samples": 1}}}


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, return the figures; two minutes when quick."""
    devices, rate, live_s = (20_000, 2_000, 30.0) if quick else (100_000, 10_000, 60.0)
    with scratch.directory("twin") as directory:
        return asyncio.run(_measure(directory, devices, rate, live_s))


async def _measure(directory: Path, devices: int, rate: int, live_s: float) -> dict[str, object]:
    async with plain_server(directory, "bench-hub", sync_interval="2m") as url:
        client = await nats.connect(url)
        await client.jetstream().add_stream(name="UP_00", subjects=["up.>"], allow_direct=True)
        await client.close()
        return await asyncio.to_thread(_figures, directory, url, devices, rate, live_s)


def _figures(
    directory: Path, url: str, devices: int, rate: int, live_s: float
) -> dict[str, object]:
    fleet = Fleet(url, devices)
    for _ in range(_BATCHES):
        fleet.say(devices)
    spark = spark_session("bench")
    try:
        backlog = Run(spark, url, directory / "backlog", max_messages=devices)
        backlog.until(lambda: backlog.rows >= _BATCHES * devices)
        backlog.stop()
        live = Run(spark, url, directory / "live", starting="latest")
        fleet.say(1)  # the first batch of a query compiles plans
        live.until(lambda: live.rows >= 1)
        before, began = Usage(), time.perf_counter()
        middle = _drive(fleet, live, rate, live_s)
        after, took_s = Usage(), time.perf_counter() - began
        live.until(lambda: live.rows >= fleet.said_live + 1)
        live.stop()
        naive = _per_key(spark, url, directory / "naive")
    finally:
        spark.stop()
        fleet.close()
    delays = np.array(live.outlet.delays_s)
    if not len(delays):
        raise BenchmarkError("no alert came")
    note = f"{devices:,} devices, 2 samples a message"
    return report(
        "The twin actor",
        [
            Figure("backlog", backlog.best_rate(), "messages/s", at_least(100_000), note),
            Figure("a key a device", naive, "messages/s", note=f"{_KEYS:,} devices, 1 sample each"),
            Figure("against it", backlog.best_rate() / naive, "times"),
            Figure("live", fleet.said_live / took_s, "messages/s", at_least(rate * 0.95)),
            Figure("alert, median", float(np.median(delays)), "s", at_most(2), f"{len(delays):,}"),
            Figure("alert, 95%", float(np.quantile(delays, 0.95)), "s", at_most(5)),
            Figure("processor", (after.cpu_s - before.cpu_s) / took_s, "cores", at_most(1)),
            Figure("memory, in the middle", middle.rss_mb, "MB", note="JVM and its workers"),
            Figure("memory, at the end", after.rss_mb, "MB"),
        ],
    )


def _drive(fleet: Fleet, live: Run, rate: int, live_s: float) -> Usage:
    """Publish at a rate; return what the job used in the middle."""
    middle = Usage()
    began = time.perf_counter()
    while (spent_s := time.perf_counter() - began) < live_s:
        live.check()
        fleet.said_live += fleet.say(int(spent_s * rate) - fleet.said_live)
        if abs(spent_s - live_s / 2) < _STEP_S:
            middle = Usage()
        time.sleep(_STEP_S)
    return middle


class Fleet:
    """A publisher of what devices say, over a plain socket and without acknowledgements."""

    def __init__(self, url: str, devices: int) -> None:
        host, port = url.removeprefix("nats://").split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        self._reading = threading.Thread(target=self._answer, daemon=True)
        self._reading.start()
        self._devices = devices
        self._next = 0
        self.said_live = 0

    def say(self, count: int) -> int:
        """Publish the next `count` devices' messages, stamped now; return how many."""
        now_ns = time.time_ns()
        bodies: dict[tuple[int, bool], bytes] = {}
        out = []
        for number in range(self._next, self._next + max(count, 0)):
            turn, device = divmod(number, self._devices)
            kind = (turn + 1, turn % 2 == 0 and device % _HOT_EVERY == 0)
            if kind not in bodies:
                bodies[kind] = _body(now_ns, *kind)
            body = bodies[kind]
            out.append(b"PUB up.V%06d.f.battery %d\r\n%b\r\n" % (device, len(body), body))
        self._next += len(out)
        self._socket.sendall(b"".join(out))
        return len(out)

    def close(self) -> None:
        """Hang up."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reading.join()
        self._socket.close()

    def _answer(self) -> None:
        while data := self._socket.recv(65536):
            if b"PING" in data:
                self._socket.sendall(b"PONG\r\n")


def _body(now_ns: int, seq: int, hot: bool) -> bytes:
    points = [Point("battery", "soc", now_ns, 71.5)]
    points.append(Point("battery", "temp", now_ns, 70.0 if hot else 30.0))
    return encode_frame(points, epoch=1, seq=seq)


class Run:
    """One query, watched."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        directory: Path,
        *,
        max_messages: int | None = None,
        starting: str = "earliest",
    ) -> None:
        self.outlet = Delays()
        source = {"servers": url, "starting": starting}
        if max_messages:
            source["maxMessages"] = str(max_messages)
        plan = plan_from(_CONFIG, "benchmark")
        query = TwinQuery(spark, plan, source, str(directory), self.outlet, SYSTEM_CLOCK)
        self._query = query.start(1.0 if starting == "latest" else 0.05)
        self._batches: dict[int, tuple[int, float]] = {}
        self._first, self._last = 1 << 62, 0

    @property
    def rows(self) -> int:
        """Return how many messages were read, as the offsets say; note what batches took."""
        for progress in self._query.recentProgress:
            low, high = (
                _read_to(at)
                for at in (progress.sources[0].startOffset, progress.sources[0].endOffset)
            )
            self._batches[progress.batchId] = (high - low, progress.batchDuration / 1000)
            self._first = min(low, self._first)
            self._last = max(high, self._last)
        return self._last - self._first if self._batches else 0

    def best_rate(self) -> float:
        """Return the median rate of batches with rows, without the first."""
        rates = [rows / seconds for rows, seconds in list(self._batches.values())[1:] if rows]
        return float(np.median(rates))

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something. Raises: BenchmarkError."""
        deadline = time.perf_counter() + _WAIT_S
        while not true():
            self.check()
            if time.perf_counter() > deadline:
                raise BenchmarkError(f"not done after {_WAIT_S:g} s: {self._batches}")
            time.sleep(0.2)

    def check(self) -> None:
        """Raise what ended the query, if anything did."""
        if error := self._query.exception():
            raise BenchmarkError(str(error)[:2000])

    def stop(self) -> None:
        """End the query."""
        self._query.stop()


def _read_to(offset: str | None) -> int:
    marks = (json.loads(offset or "{}") or {}).get("streams", {})  # "null" before the first
    return sum(int(mark["seq"]) for mark in marks.values())


class Delays:
    """An outlet that notes how old alerts are when they come."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    def write(self, batch_id: int, alerts: pa.Table, snapshots: pa.Table) -> None:
        """Take a batch."""
        now_ns = time.time_ns()
        self.delays_s += [(now_ns - at) / 1e9 for at in alerts.column("time_ns").to_pylist()]


class Usage:
    """What the JVM and its workers have used so far."""

    def __init__(self) -> None:
        self.cpu_s = self.rss_mb = 0.0
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name() == "nats-server":
                    continue
                # A worker that has ended counts with the one that waited for it.
                self.cpu_s += sum(process.cpu_times()[:4])
                self.rss_mb += process.memory_info().rss / 1e6
            except psutil.Error:
                continue


class PerDevice(StatefulProcessor):
    """The obvious way: a state a device, three fields."""

    def init(self, handle: Any) -> None:
        """Open the state."""
        self._state = handle.getValueState("device", "above int, last double, stored long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Take a device's rows."""
        above = (self._state.get() or (0,))[0]
        last = 0.0
        for row in rows:
            last = row.value_f64
            above = above + 1 if last > 60 else 0
        self._state.update((above, last, 0))
        yield from ()


def _per_key(spark: SparkSession, url: str, directory: Path) -> float:
    """Return messages a second of the obvious way, from its second batch."""
    spark.dataSource.register(JetStreamSource)
    options = {"servers": url, "format": "points", "maxMessages": str(_KEYS)}
    points = spark.readStream.format("jetstream").options(**options).load()
    query = (
        points.where("type = 'temp'")
        .groupBy("device")
        .transformWithState(PerDevice(), "device string", "Append", "None")
        .writeStream.format("noop")
        .option("checkpointLocation", str(directory))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        deadline = time.perf_counter() + _WAIT_S
        while not query.lastProgress or query.lastProgress.batchId < 1:
            if error := query.exception():
                raise BenchmarkError(str(error)[:2000])
            if time.perf_counter() > deadline:
                raise BenchmarkError("the obvious way did not get through two batches")
            time.sleep(0.2)
        second = next(p for p in query.recentProgress if p.batchId == 1)
        return _KEYS / (second.batchDuration / 1000)
    finally:
        query.stop()
