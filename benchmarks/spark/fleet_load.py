"""A fleet of 100,000 on two cores: what a job on Spark costs, and how long an alert takes.

Modelled: a test hub, and `backhaul-hub simulate` writing into it what 100,000 devices at six messages a
minute send, 1,000 of them with a battery that gets too warm now and then. First ingest reads that,
then the twin's job, each at `nice 5`. A job's processor time is that of its whole process tree, JVM and Python workers; an alert's
latency is from the stamp of the reading that raised it to when the hub stored the alert, by one
machine's clock. Not covered: the hub's own fsync (a test hub has none with each message), links.

For the full ten minutes: BACKHAUL_LOAD_SECONDS=600. BACKHAUL_LOAD_RATE takes another rate than 6/min,
BACKHAUL_LOAD_DEVICES another fleet, BACKHAUL_LOAD_JOBS=twin one job of the two.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from backhaul_hub.cli._ask import hub_client
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.process_tree import ProcessTree
from tests.support.rig.parts import Part, program
from tests.support.rig.spark_jobs import messages_read, simulated_hub

SHARDS = 4
HOT_PART = 0.01
EVENTS = "TWIN_EVENTS"
_LOOK_S = 2.0
_WAIT_S = 600.0
# All vehicles say what they are at once; that, nobody waits for an alert through.
_SETTLING_PART = 0.1
_READ_MESSAGES = 4_096


JOBS = {
    "ingest": ["--every", "1s", "--quiet"],
    "twin": ["--trigger", "1s"],
}


@dataclass(frozen=True, slots=True)
class Load:
    """What the fleet is told to do: see `backhaul-hub simulate`."""

    devices: int
    rate: str
    seconds: int
    hot: int = 0


def run(*, quick: bool) -> dict[str, object]:
    """Load each job, print the table, and return it."""
    seconds = int(os.environ.get("BACKHAUL_LOAD_SECONDS", "120" if quick else "300"))
    rate = os.environ.get("BACKHAUL_LOAD_RATE", "6/min")
    devices = int(os.environ.get("BACKHAUL_LOAD_DEVICES", "100000"))
    load = Load(devices, rate, seconds, int(devices * HOT_PART))
    figures: list[Figure] = []
    for name in os.environ.get("BACKHAUL_LOAD_JOBS", ",".join(JOBS)).split(","):
        with scratch.directory(f"fleet-load-{name}") as directory:
            figures += asyncio.run(_measure(directory, name, load))
    return report(f"{devices:,} devices at {rate} for {seconds} s", figures, seconds=seconds)


async def _measure(directory: Path, name: str, load: Load) -> list[Figure]:
    hub = directory / "hub"
    server, port = simulated_hub(directory, shards=SHARDS, up_gib=2)
    # So that there are streams before the job starts, and nothing in the introductions to wait for.
    async with _running(server):
        await server.wait_listening(port)
        first = await _simulated(directory, hub, Load(1, "1/s", 1))
        # The fleet goes first: 100,000 vehicles would not wait for a job that has the machine.
        spark = ["nice", "-n", "5", program("backhaul-spark"), name, "--hub-dir", str(hub)]
        spark += ["--table-root", str(directory / "tables"), *JOBS[name]]
        job = Part(name, spark, directory / f"{name}.log")
        async with _running(job):
            await _read_up_to(first["messages"], directory, job)
            return await _under_load(directory, hub, job, server, load, first["messages"])


async def _under_load(
    directory: Path, hub: Path, job: Part, server: Part, load: Load, before: int
) -> list[Figure]:
    name = job.name
    seen, of_server = ProcessTree(job.pid), ProcessTree(server.pid)
    seen.look()
    of_server.look()
    before_s, server_s = seen.cpu_s, of_server.cpu_s
    began_s = time.monotonic()  # noqa: TID251 - of real processes
    looking = asyncio.create_task(_look(seen))
    try:
        done = await _simulated(directory, hub, load)
        wall_s = time.monotonic() - began_s  # noqa: TID251
        live_ns = time.time_ns() - int(done["live_s"] * 1e9)
        behind_s = await _read_up_to(before + done["messages"], directory, job)
    finally:
        looking.cancel()
    seen.look()
    of_server.look()
    job.assert_alive()
    core_s = seen.cpu_s - before_s
    tenth = max(1, len(seen.memory_mb) // 10)
    first_mb = median(seen.memory_mb[tenth : 3 * tenth])
    last_mb = median(seen.memory_mb[-2 * tenth :])
    figures = [
        Figure(f"{name}: messages sent", done["messages"] / wall_s, "messages/s"),
        Figure(f"{name}: sender at most behind", done["behind_s_max"], "s"),
        Figure(f"{name}: all read after the last was sent", behind_s, "s"),
        Figure(
            f"{name}: processor",
            core_s / (wall_s + behind_s) / 2,
            "of two cores",
            at_most(0.5) if name == "twin" else None,
            f"{core_s / done['messages'] * 1e6:.0f} us a message",
        ),
        Figure(
            f"{name}: hub's server",
            (of_server.cpu_s - server_s) / (wall_s + behind_s) / 2,
            "of two cores",
        ),
        Figure(f"{name}: memory early, proportional", first_mb, "MB"),
        Figure(f"{name}: memory at the end", last_mb, "MB", at_most(first_mb * 1.1)),
    ]
    if name == "twin":
        figures += _latency(await _alerts(hub, live_ns + int(load.seconds * _SETTLING_PART * 1e9)))
    return figures


async def _look(seen: ProcessTree) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        await asyncio.to_thread(seen.look)


async def _simulated(directory: Path, hub: Path, load: Load) -> dict[str, Any]:
    """Run the simulator to its end; return what it says."""
    command = [program("backhaul-hub"), "simulate", "--dir", str(hub), "--json"]
    command += ["--devices", str(load.devices), "--rate", load.rate]
    command += ["--seconds", str(load.seconds), "--faults", f"hot:{load.hot}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr, cwd=directory
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchmarkError(f"the simulator ended with {process.returncode}")
    done: dict[str, Any] = json.loads(output)
    return done


def _checkpoint(directory: Path, name: str) -> Path:
    return directory / "tables" / "_checkpoints" / name


async def _read_up_to(count: int, directory: Path, job: Part) -> float:
    """Wait until a job has done with so many messages; return how long that took, in seconds."""
    began_s = time.monotonic()  # noqa: TID251 - of a real process
    async with asyncio.timeout(_WAIT_S):
        while messages_read(_checkpoint(directory, job.name)) < count:
            job.assert_alive()
            await asyncio.sleep(0.1)
    return time.monotonic() - began_s  # noqa: TID251


async def _alerts(hub: Path, since_ns: int) -> list[tuple[float, dict[str, Any]]]:
    """Return the alerts of what happened since, each with its latency in seconds."""
    found: list[tuple[float, dict[str, Any]]] = []
    async with hub_client(hub) as client:
        reader = StoredReader(client, EVENTS)
        state = (await JetStreamApi(client).request(f"STREAM.INFO.{EVENTS}"))["state"]
        seq = max(1, state["first_seq"])
        while messages := await reader.read(seq, _READ_MESSAGES):
            seq = messages[-1].seq + 1
            for each in messages:
                alert = json.loads(each.body) if ".evt.alert." in each.subject else {"time": 0}
                if alert["time"] >= since_ns:
                    found.append(((each.stored_ns - alert["time"]) / 1e9, alert))
    return found


def _latency(alerts: list[tuple[float, dict[str, Any]]]) -> list[Figure]:
    hot = [
        latency_s
        for latency_s, alert in alerts
        if "command" in alert and alert["kind"] == "raised" and not alert["late"]
    ]
    if len(hot) < 20:
        raise BenchmarkError(f"{len(hot)} alerts of {len(alerts)} are of warm batteries")
    return [
        Figure("twin: alerts of warm batteries", len(hot), "alerts"),
        Figure("twin: from reading to alert, median", median(hot), "s", at_most(2)),
        Figure("twin: from reading to alert, p95", quantiles(hot, n=20)[18], "s", at_most(5)),
    ]


@asynccontextmanager
async def _running(part: Part) -> AsyncIterator[None]:
    await part.start()
    try:
        yield
    finally:
        await part.stop()
