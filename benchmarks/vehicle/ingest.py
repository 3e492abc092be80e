"""Measure how much an agent makes durable, and what that costs it.

One vehicle out of reach of its hub: its leaf server and its agent as separate processes, publishers
in this one. Readings count when the agent has said "kept", which it does after an fsync. Afterwards
every frame in the leaf's OUT stream is decoded: exactly the acknowledged readings must be there.
"One core" is readings per second of the agent's own processor time, the append to OUT included:
what it could take if it had a core to itself and the publishers kept up.
Beside it, the same readings made durable without us (see `ingest_naive`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import numpy as np
from nats.aio.client import Client

from backhaul_agent.apps.floods import SHARE_OF_ONE
from backhaul_agent.client import Agent, connect
from backhaul_agent.config import IngestConfig
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Aim, Figure, at_least, report
from benchmarks.vehicle import ingest_naive
from tests.support.numbered_points import NODE, point, points
from tests.support.rig.vehicle import VehicleRig, connection, cpu_s, vehicle
from tests.support.stream_content import numbers_in, read_stream, require_exactly

BATCH_SIZES = (100, 250, 1000)
BATCH_AIM = at_least(100_000)
SINGLE_AIM = at_least(5_000)
WAITING_PUBLISHERS = 256
# Fire and forget has no answer to pace it, and the agent refuses what one program sends beyond its
# share of the messages that may wait for the disk. The publisher is one program, as all are that have
# no key; it looks at the agent's count often enough to stay an eighth below that share.
_STATUS_EVERY = 500
UNKEPT_MAX = int(SHARE_OF_ONE * IngestConfig().pending_messages_max * 7 / 8) - _STATUS_EVERY


@dataclass(frozen=True, slots=True)
class Pass:
    """One measured load: readings, wall-clock and processor seconds."""

    points: int
    wall_s: float
    agent_cpu_s: float
    leaf_cpu_s: float
    commits: int

    @property
    def per_s(self) -> float:
        """Readings acknowledged per second of wall clock."""
        return self.points / self.wall_s

    @property
    def per_core_s(self) -> float:
        """Readings per second of the agent's processor time."""
        return self.points / max(self.agent_cpu_s, 0.01)

    def figures(self, name: str, unit: str, aim: Aim | None = None) -> list[Figure]:
        """Return both rates, and how much a commit has."""
        micros = self.agent_cpu_s / self.points * 1e6
        return [
            Figure(name, self.per_s, f"{unit}/s", aim),
            Figure(
                f"{name}, one core",
                self.per_core_s,
                f"{unit}/core-s",
                aim,
                f"agent {micros:.2f} us each, leaf {self.leaf_cpu_s / self.points * 1e6:.2f} us",
            ),
            Figure(f"{name}, a commit", self.points / self.commits, unit),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Run all loads, print the table, and return it."""
    figures: list[Figure] = []
    with scratch.directory("ingest") as directory:
        asyncio.run(_ours(directory, figures, quick=quick))
        figures += ingest_naive.measure(directory, seconds=2.0 if quick else 6.0)
    return report("ingest: readings durable on the vehicle", figures)


async def _ours(directory: Path, figures: list[Figure], *, quick: bool) -> None:
    async with vehicle(directory, hub_runs=False, linked=False) as rig:
        async with connection(rig.device.url) as client, connect(rig.device.url) as agent:
            loads = _Loads(rig, client, agent)
            for size in BATCH_SIZES:
                done = await loads.batches(200_000 if quick else 1_000_000, size)
                figures += done.figures(f"batches of {size}", "points", BATCH_AIM)
            done = await loads.waiting(10_000 if quick else 50_000)
            figures += done.figures(
                f"single JSON, {WAITING_PUBLISHERS} waiting", "messages", SINGLE_AIM
            )
            done = await loads.unheard(20_000 if quick else 100_000)
            figures += done.figures("single JSON, not waiting", "messages")
            figures += await loads.alone(500 if quick else 3_000)
        async with rig.device.connection() as client:
            found = numbers_in(await read_stream(client, "OUT_bulk"))
        require_exactly("OUT_bulk", found, np.arange(loads.acknowledged))
        figures.append(
            Figure("acknowledged, and in OUT exactly once", loads.acknowledged, "points")
        )


class _Loads:
    """The loads, numbered on from one another so that all can be counted at the end."""

    def __init__(self, rig: VehicleRig, client: Client, agent: Agent) -> None:
        self.acknowledged = 0
        self._rig = rig
        self._client = client
        self._agent = agent

    async def batches(self, count: int, size: int) -> Pass:
        """Publish with the Python client's batches; the points exist beforehand."""
        prepared = points(count, self.acknowledged)

        async def publish() -> None:
            async with self._agent.batch(NODE, frame_points=size) as batch:
                for each in prepared:
                    await batch.put(each)
            _require("batches", batch.kept, count)

        return await self._measured(count, publish)

    async def waiting(self, count: int) -> Pass:
        """Publish single JSON messages from many publishers, each waiting for its answer."""
        remaining = iter(points(count, self.acknowledged))

        async def one_after_another() -> None:
            for each in remaining:
                await self._agent.publish(NODE, each.type, each.value, time=each.time)

        async def publish() -> None:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WAITING_PUBLISHERS):
                    tasks.create_task(one_after_another())

        return await self._measured(count, publish)

    async def unheard(self, count: int) -> Pass:
        """Publish single JSON messages without waiting, no faster than the agent commits."""
        prepared = points(count, self.acknowledged)
        before = await self._kept()

        async def publish() -> None:
            for sent, each in enumerate(prepared):
                if sent % _STATUS_EVERY == 0:
                    await _until_at_least(self._kept, before + sent - UNKEPT_MAX)
                await self._agent.send(NODE, each.type, each.value, time=each.time)
            await _until_at_least(self._kept, before + count)

        done = await self._measured(count, publish)
        _require("fire and forget", await self._kept() - before, count)
        return done

    async def alone(self, count: int) -> list[Figure]:
        """Publish one reading after another, each after the answer to the one before."""
        latencies_ms = []
        for number in range(self.acknowledged, self.acknowledged + count):
            each = point(number)
            start_s = time.perf_counter()
            await self._agent.publish(NODE, each.type, each.value, time=each.time)
            latencies_ms.append((time.perf_counter() - start_s) * 1000)
        self.acknowledged += count
        await self._rig.appended(self._client)
        return [
            Figure("one publisher: kept after, median", median(latencies_ms), "ms"),
            Figure("one publisher: kept after, p99", quantiles(latencies_ms, n=100)[98], "ms"),
        ]

    async def _measured(self, count: int, publish: Callable[[], Awaitable[None]]) -> Pass:
        agent, leaf = self._rig.device.agent.pid, self._rig.device.leaf.pid
        await self._rig.appended(self._client)
        agent_cpu_s, leaf_cpu_s = cpu_s(agent), cpu_s(leaf)
        commits = await self._counted("commits")
        start_s = time.perf_counter()
        await publish()
        wall_s = time.perf_counter() - start_s
        # What was kept is still to be appended: that work belongs to it too.
        await self._rig.appended(self._client)
        self.acknowledged += count
        agent_cpu_s, leaf_cpu_s = cpu_s(agent) - agent_cpu_s, cpu_s(leaf) - leaf_cpu_s
        commits = await self._counted("commits") - commits
        return Pass(count, wall_s, agent_cpu_s, leaf_cpu_s, commits)

    async def _kept(self) -> int:
        return await self._counted("points_kept")

    async def _counted(self, what: str) -> int:
        status = await self._rig.status(self._client)
        refused = status["counters"]["refused"]
        if refused:
            raise BenchmarkError(f"the agent refused readings: {refused}")
        return int(status["counters"][what])


async def _until_at_least(value: Callable[[], Awaitable[int]], limit: int) -> None:
    async with asyncio.timeout(60):
        while await value() < limit:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.002)


def _require(what: str, kept: int, sent: int) -> None:
    if kept != sent:
        raise BenchmarkError(f"{what}: {kept} of {sent} points were kept")
