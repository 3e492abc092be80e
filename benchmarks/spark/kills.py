"""Twenty kill -9 of jobs on Spark at random moments: points, rollups, alerts and commands each once.

Modelled: a test hub, and `backhaul-hub simulate` in rounds of a minute, each with ledgers of its own: batteries
that get hot (alerts, and commands), leak (alerts that come and go), vehicles that fall silent, and some that
were away and bring a backlog, of forty minutes the first time; between two rounds some messages
come once more. `ingest`, `twin` (the first time on a local cluster: its executor is a JVM of its own) and
`rollup`, again and again, run as their units have them run. At moments that a seed chooses each is killed
with SIGKILL: all its processes, its Python program, its JVM, the executor, or one Python process that
Spark started; what ends is started again. At the end everything is counted from outside (kills_account.py).

Left out of the count, as the documents have it: what rule `battery` says of vehicles that brought a
backlog. Its two series come in frames longer than a batch may be, and in which order it sees them
depends on where batches end. An alert that is told later than `late_after_s` has no command.
The words of an alert of silence, of two tellings, are either's; its id, time and kind are not.

Not covered: resends that fill holes, power cuts, kills of the hub, object stores, more than one machine.

BACKHAUL_KILLS=5 takes fewer kills, BACKHAUL_KILLS_SEED other moments; BACKHAUL_KILLS_SECONDS=600 kills
nothing any more after so long, on a machine that is busy with other things.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deltalake import DeltaTable
from nats.aio.client import Client

from backhaul_hub.cli._ask import hub_client
from backhaul_spark.rules.config import read_plan
from backhaul_spark.rules.recompute import Recompute
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.spark.kills_feed import LATE, SHARDS, Feed
from tests.support.kills_account import (
    Place,
    Reading,
    Told,
    check_alerts,
    check_commands,
    check_points,
    check_rollups,
    readings_of,
    silences,
)
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.spark_jobs import (
    Job,
    batches_done,
    in_a_batch,
    messages_read,
    on_cluster,
    simulated_hub,
)

SEED = 20_261_122
# As many of them as asked for, from the top; each job's in an order that the seed chooses.
KILLS = (
    ("twin", "executor"),
    ("ingest", "job"),
    ("rollup", "job"),
    ("twin", "job"),
    ("ingest", "worker"),
    ("rollup", "jvm"),
    ("twin", "jvm"),
    ("ingest", "jvm"),
    ("twin", "worker"),
    ("ingest", "driver"),
    ("rollup", "worker"),
    ("twin", "driver"),
    ("ingest", "job"),
    ("twin", "executor"),
    ("rollup", "driver"),
    ("ingest", "worker"),
    ("rollup", "job"),
    ("twin", "job"),
    ("ingest", "jvm"),
    ("rollup", "jvm"),
)
# What `rollup` says when it starts, and of its steps.
STEPS = (
    "starting Spark",
    "windows touched",
    "windows summed",
    "windows files",
    "windows superseded",
)
AFTER_S, LATE_AFTER_S = 20.0, 120.0
# A limit where the leak is: with noise, alerts come and go.
TWIN = f"""
[twin]
buckets = 4
tick_s = 1
grace_s = 5
late_after_s = {LATE_AFTER_S}
[rules.battery]
fall_pct_h = 14.0
window_s = 30
load_s_max = 120
[rules.silence]
after_s = {AFTER_S}
explain_s = 5
"""
_PAUSE_S_MAX, _STEP_S_MAX = 4.0, 0.3
# However busy the machine is.
_WAIT_S = 600.0
_TICKS = 4


@dataclass(slots=True)
class Killed:
    """One kill: when, of what, and whether a batch (a run of `rollup`) was under way."""

    at_s: float
    job: str
    what: str
    amid: bool


def run(*, quick: bool) -> dict[str, object]:
    """Kill, count, print the table and return it.

    Raises:
        BenchmarkError: something is missing, doubled or wrong.
    """
    kills = int(os.environ.get("BACKHAUL_KILLS", "4" if quick else "20"))
    seed = int(os.environ.get("BACKHAUL_KILLS_SEED", str(SEED)))
    print(f"kills: {kills}, seed {seed}", flush=True)
    with scratch.directory("kills") as directory:
        return asyncio.run(_run(directory, kills, 100 if quick else 200, seed))


async def _run(directory: Path, kills: int, devices: int, seed: int) -> dict[str, object]:
    server, port = simulated_hub(directory, shards=SHARDS, up_gib=1)
    await server.start()
    try:
        await server.wait_listening(port)
        async with hub_client(directory / "hub") as client:
            return await _Run(directory, client, devices, seed, KILLS[:kills]).run()
    finally:
        await server.stop()


class _Run:
    """One storm on one hub."""

    def __init__(
        self,
        directory: Path,
        client: Client,
        devices: int,
        seed: int,
        kills: Sequence[tuple[str, str]],
    ) -> None:
        self._directory = directory
        self._root = directory / "tables"
        self._hub = directory / "hub"
        self._feed = Feed(self._hub, client, devices, seed)
        self._seed = seed
        self._kills = kills
        self._killed: list[Killed] = []
        self._kills_s_max = float(os.environ.get("BACKHAUL_KILLS_SECONDS", "inf"))
        self._began_s = 0.0
        self._config = directory / "twin.toml"
        self._config.write_text(TWIN)
        self._jobs = {job.name: job for job in self._make_jobs()}

    def _make_jobs(self) -> list[Job]:
        root, hub = ["--table-root", str(self._root)], ["--hub-dir", str(self._hub)]
        backhaul = program("backhaul-spark")
        twin = ["twin", "--trigger", "1s", "--config", str(self._config), *hub, *root]
        cluster = on_cluster(self._directory / "zip", twin)
        logs = {name: self._directory / f"{name}.log" for name in ("ingest", "twin", "rollup")}
        ingest = [backhaul, "ingest", "--every", "1s", *hub, *root]
        rollup = [backhaul, "rollup", *root]
        return [
            Job("ingest", ingest, logs["ingest"]),
            Job("twin", cluster, logs["twin"], again=[backhaul, *twin]),
            Job("rollup", rollup, logs["rollup"], ends=True),
        ]

    async def run(self) -> dict[str, object]:
        await self._feed.begin()
        began_s = self._began_s = time.monotonic()  # noqa: TID251 - of real processes
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._feed.watch_commands())
                sending = group.create_task(self._feed.send())
                for job in self._jobs.values():
                    job.start()
                    if job.name == "ingest":  # without whose tables there is nothing to roll up
                        await self._go_on(job)
                async with asyncio.TaskGroup() as killing:
                    for name, job in self._jobs.items():
                        whats = [what for of, what in self._kills if of == name]
                        killing.create_task(self._kill_all(job, whats))
                self._feed.over.set()
                await sending
                await self._settle()
                watching.cancel()
            await self._stop_jobs()
        finally:
            for job in self._jobs.values():
                job.end()
        await run_to_end([program("backhaul-spark"), "rollup", "--table-root", str(self._root)])
        return await self._account(time.monotonic() - began_s)  # noqa: TID251

    async def _kill_all(self, job: Job, kills: list[str]) -> None:
        """Kill a job again and again, each time after it has done something."""
        dice = random.Random(f"{self._seed}:{job.name}")
        # It begins on the cluster, so that there is an executor.
        for what in sorted(dice.sample(kills, len(kills)), key=lambda what: what != "executor"):
            await self._go_on(job)
            if time.monotonic() - self._began_s > self._kills_s_max:  # noqa: TID251
                return
            await self._moment(job, dice)
            await self._kill(job, what, dice.getrandbits(16))

    async def _go_on(self, job: Job) -> None:
        before = self._progress(job)
        complaint = f"{job.name} does not go on; see {job.log}"
        await _until(lambda: self._progress(job) > before, complaint)

    async def _moment(self, job: Job, dice: random.Random) -> None:
        """Wait for a moment to kill at: of `rollup`, which ends by itself, behind one of its steps."""
        if job.name == "rollup":
            step, seen = dice.choice(STEPS).encode(), job.log.stat().st_size
            await _until(lambda: step in job.log.read_bytes()[seen:], f"no {step!r} in {job.log}")
        await asyncio.sleep(dice.uniform(0, _STEP_S_MAX if job.name == "rollup" else _PAUSE_S_MAX))

    async def _kill(self, job: Job, what: str, choose: int) -> None:
        """Kill, as soon as the job has such a part: some come and go."""
        await _until(lambda: job.kill(what, choose), f"{job.name} has no {what} to kill")
        # What is killed commits nothing any more; the others of its processes may.
        amid = job.name == "rollup" or in_a_batch(self._checkpoint(job))
        at_s = time.monotonic() - self._began_s  # noqa: TID251
        self._killed.append(Killed(round(at_s, 1), job.name, what, amid))
        print(f"{at_s:6.1f} s: {job.name}: {what}{', in a batch' if amid else ''}", file=sys.stderr)

    def _progress(self, job: Job) -> int:
        if job.name == "rollup":
            return job.finished
        return batches_done(self._checkpoint(job))

    def _checkpoint(self, job: Job) -> Path:
        return self._root / "_checkpoints" / job.name

    async def _settle(self) -> None:
        """Wait until all is read, and each vehicle's last silence told."""
        await self._feed.read_up()
        count = len(self._feed.messages)
        places = [self._checkpoint(self._jobs[name]) for name in ("ingest", "twin")]
        await _until(lambda: min(map(messages_read, places)) >= count, "not everything was read")
        # Every vehicle is silent now. That is told by the clock: by a tick in one of some batches.
        last_ns = max(each.stored_ns for each in self._feed.messages)
        due_ns = last_ns + int(AFTER_S * 1e9)
        await _until(lambda: time.time_ns() > due_ns, "time stands still")
        for _ in range(_TICKS):
            await self._go_on(self._jobs["twin"])

    async def _stop_jobs(self) -> None:
        for job in self._jobs.values():
            await job.stop()
        await self._feed.read_commands()

    def _silences(self) -> set[str]:
        last_ns = max(each.stored_ns for each in self._feed.messages)
        return silences(self._feed.messages, AFTER_S, last_ns + int(2 * AFTER_S * 1e9))

    async def _account(self, took_s: float) -> dict[str, object]:
        """Count everything, and print it.

        Raises:
            BenchmarkError: it is not all as it should be.
        """
        feed, root = self._feed, self._root
        readings = readings_of(feed.messages)
        events = await self._feed.alerts()
        late = {f"SIM-{number:06d}" for number in range(LATE)}
        table = DeltaTable(str(root / "alerts")).to_pyarrow_table()
        rules = Recompute(str(root), read_plan(str(self._config))).run(None, None).to_pylist()
        expected = {row["id"] for row in rules if row["rule"] != "silence"} | self._silences()

        def counts(id_: str) -> bool:
            device, rule, *_ = id_.split(":")
            return not (rule == "battery" and device in late)

        counted = [told for told in events if counts(told.alert["id"])]
        kept = [counts(id_) for id_ in table["id"].to_pylist()]
        complaints = [
            *check_points(root, readings),
            *check_rollups(root, self._directory / "anew", readings),
            *check_alerts(counted, table.filter(kept), set(filter(counts, expected))),
            *check_commands(events, list(feed.commands.values()), LATE_AFTER_S),
        ]
        figures = self._figures(readings, events, took_s)
        for kind in ("lost", "doubled", "wrong"):
            count = sum(each.number for each in complaints if each.kind == kind)
            figures.append(Figure(kind, count, "", at_most(0)))
        texts = [each.text for each in complaints]
        kills = [asdict(kill) for kill in self._killed]
        result = report(
            "Jobs on Spark under kill -9", figures, seed=self._seed, kills=kills, complaints=texts
        )
        if texts:
            raise BenchmarkError("\n".join(texts))
        return result

    def _figures(
        self,
        readings: dict[Place, Reading],
        events: list[Told],
        took_s: float,
    ) -> list[Figure]:
        feed, root = self._feed, self._root
        windows = DeltaTable(str(root / "rollups")).to_pyarrow_table(columns=["version"])
        versions = windows["version"].to_numpy()
        rules = Counter(told.alert["rule"] for told in events)
        kills = Counter(kill.what for kill in self._killed)
        jobs = Counter(kill.job for kill in self._killed)
        unasked = [text for job in self._jobs.values() for text in job.unasked]
        starts = ", ".join(f"{job.name} {job.starts}" for job in self._jobs.values())
        return [
            Figure("kill -9", len(self._killed), "", note=_counted(kills)),
            Figure(
                "of them in a batch",
                sum(kill.amid for kill in self._killed),
                "",
                note=_counted(jobs),
            ),
            Figure(
                "jobs that failed without a kill",
                len(unasked),
                "",
                note=unasked[0] if unasked else "",
            ),
            Figure("took", took_s, "s", note=f"starts: {starts}"),
            Figure("messages", len(feed.messages), "", note=f"{feed.repeated} sent again"),
            Figure("points", len(readings), ""),
            Figure("windows", len(versions), "", note=f"{int((versions > 1).sum()):,} restated"),
            Figure("alerts", len(events), "", note=_counted(rules)),
            Figure("of them late", sum(told.alert["late"] for told in events), ""),
            Figure("commands", len(feed.commands), ""),
        ]


async def _until(true: Callable[[], bool], complaint: str) -> None:
    """Wait until something is true. Raises: BenchmarkError."""
    deadline_s = time.monotonic() + _WAIT_S  # noqa: TID251 - of real processes
    while not true():
        if time.monotonic() > deadline_s:  # noqa: TID251
            raise BenchmarkError(f"{complaint}: not in {_WAIT_S:g} s")
        await asyncio.sleep(0.05)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
