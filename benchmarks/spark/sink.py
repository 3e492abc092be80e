"""What the twin job's outlet costs, and what twenty kill -9 at random moments leave behind.

Modelled: alerts with an id published a window at a time, for the first time and again, to a server that
syncs now and then and to one that syncs each message, as a hub does; and the table beside. Then the
outlet as a process that is killed (tests/support/sink_job.py) and does the batch again, against one that publishes
without ids. Not covered: Spark itself, the accounts of a hub, a server that dies.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable

from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.direct_get import Reader
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rules.alert import alert_table
from backhaul_spark.sink.alert_tables import AlertTables
from backhaul_spark.sink.outgoing import alert_message
from backhaul_spark.sink.publisher import Publisher
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.link.plain_link import plain_server
from tests.support.rig.vehicle import connection
from tests.support.sink_job import alerts_of

STREAMS = {"TWIN_EVENTS": "evt.alert.>", "TWIN_CMD": "cmd.>"}
KILLS = 20
SEED = 20_261_122


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, return the figures; about a minute when quick."""
    count, kills = (6_000, 6) if quick else (30_000, KILLS)
    figures = []
    with scratch.directory("sink") as directory:
        for sync in ("2m", "always"):
            figures += asyncio.run(_rates(directory, sync, count if sync == "2m" else count // 10))
        figures += _table(directory, count)
        figures += asyncio.run(_killed(directory, kills))
    return report("the twin job's outlet", figures, seed=SEED, kills=kills)


async def _rates(directory: Path, sync: str, count: int) -> list[Figure]:
    """Publish alerts twice."""
    async with plain_server(directory, f"sync-{sync}", sync_interval=sync) as url:
        await _make_streams(url)
        rows = alert_table(alerts_of(0, time.time_ns(), count=count)).to_pylist()
        seconds = [await asyncio.to_thread(_publish, url, rows, again) for again in (False, True)]
    note = f"{count:,}, sync_interval: {sync}"
    return [
        Figure(f"alerts published, sync {sync}", count / seconds[0], "alerts/s", note=note),
        Figure(f"the same again, sync {sync}", count / seconds[1], "alerts/s", note="all there"),
    ]


def _publish(url: str, rows: list[dict[str, object]], again: bool) -> float:
    publisher = Publisher(endpoint_from({"servers": url}))
    began_s = time.perf_counter()
    done = publisher.publish(rows, lambda row: alert_message("prod", row))
    seconds = time.perf_counter() - began_s
    publisher.close()
    if done != ((0, len(rows), 0) if again else (len(rows), 0, 0)):
        raise BenchmarkError(f"published {done} of {len(rows)}")
    return seconds


def _table(directory: Path, count: int) -> list[Figure]:
    """Add alerts to a table a hundred at a time, which looks each of them up."""
    tables = AlertTables(str(directory / "table"), SYSTEM_CLOCK)
    began_ns = time.time_ns()
    batches = max(20, count // 600)
    began_s = time.perf_counter()
    for batch in range(batches):
        tables.add_alerts(batch, alert_table(alerts_of(batch, began_ns, count=100)))
    each_ms = (time.perf_counter() - began_s) / batches * 1000
    note = f"100 alerts each, {batches} batches"
    return [Figure("a batch into the table", each_ms, "ms", at_most(250), note)]


async def _killed(directory: Path, kills: int) -> list[Figure]:
    figures = []
    async with plain_server(directory, "killed", sync_interval="2m") as url:
        for mode, aim in (("never", at_most(0)), ("naive", None)):
            await _make_streams(url)
            killed = await asyncio.to_thread(_kill, directory / mode, url, mode, kills)
            doubled, missing, commands = await asyncio.to_thread(_count, url, directory / mode)
            if missing:
                raise BenchmarkError(f"{missing} alerts or commands are missing ({mode})")
            if not killed:
                raise BenchmarkError("nothing was killed in the middle")
            name = "with ids" if mode == "never" else "naive: without ids"
            note = f"{killed} kill -9, {commands:,} commands"
            figures.append(Figure(f"alerts published twice, {name}", doubled[0], "", aim, note))
            figures.append(Figure(f"commands published twice, {name}", doubled[1], "", aim))
            figures.append(Figure(f"rows twice in the table, {name}", doubled[2], "", aim))
    return figures


BATCHES = 120


def _kill(directory: Path, url: str, mode: str, kills: int) -> int:
    """Run the job to its end, over so many kills; return how many of them met it alive."""
    directory.mkdir()
    (directory / "began_ns").write_text(str(time.time_ns()))
    chance, met = random.Random(SEED), 0
    arguments = [url, str(directory), str(BATCHES), mode]
    for number in range(kills + 1):
        command = [sys.executable, "-m", "tests.support.sink_job", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.0, 0.4) if number < kills else 600.0)
            process.kill()
            met += process.wait() == -signal.SIGKILL
    return met


def _count(url: str, directory: Path) -> tuple[tuple[int, int, int], int, int]:
    """Return what is there twice of alerts, commands, rows; what is missing; and how many commands."""
    began_ns = int((directory / "began_ns").read_text())
    must = {each.id for batch in range(BATCHES) for each in alerts_of(batch, began_ns)}
    bodies = [json.loads(body) for body in _bodies(url, "TWIN_EVENTS")]
    alerts = Counter(each["id"] for each in bodies)
    asking = len({each["id"] for each in bodies if "command" in each})
    commands = len(_bodies(url, "TWIN_CMD"))
    name = "naive" if (directory / "tables" / "naive").exists() else "alerts"
    table = DeltaTable(str(directory / "tables" / name)).to_pyarrow_table(columns=["id"])
    rows = Counter(table["id"].to_pylist())
    missing = len(must - alerts.keys()) + len(must - rows.keys()) + max(0, asking - commands)
    doubled = (alerts.total() - len(alerts), max(0, commands - asking), rows.total() - len(rows))
    return doubled, missing, commands


def _bodies(url: str, stream: str) -> list[bytes]:
    connection = Connection(endpoint_from({"servers": url}))
    try:
        reader = Reader(connection)
        info = reader.streams([stream])[stream]
        parts = reader.read(stream, info.first_seq, info.last_seq)
        return [body for part in parts for body in part.bodies]
    finally:
        connection.close()


async def _make_streams(url: str) -> None:
    """Make both streams, empty."""
    async with connection(url) as client:
        api = JetStreamApi(client)
        for name, subjects in STREAMS.items():
            if await api.stream_info(name) is not None:
                await api.request(f"STREAM.DELETE.{name}")
            config = {"subjects": [f"fleet.prod.veh.*.{subjects}"], "allow_direct": True}
            await api.request(f"STREAM.CREATE.{name}", {"name": name} | config)
