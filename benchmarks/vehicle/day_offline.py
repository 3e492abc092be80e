"""Measure a day without a link: 20 signals at 10 Hz for 24 h, 17.28 million points, and their drain.

A vehicle out of reach is handed a day, a batch for each second of it, as fast as its agent acknowledges;
all of it must be kept. Then the link comes back, over loopback and as wide as it will, until the control
plane says that nothing is missing. In the end UP is read from outside: each reading of the day once, with
its value, and no other. Resident memory of every process is taken each second, so that what it is with a
day waiting stands beside what it is with an hour waiting.

Beside it what the hub takes: four vehicles that drain at once, straight to its port and with no relay
between. And what a link takes: a part of the day over 1 Mbit/s and 50 ms. `--quick`: a 50th of the day.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from nats.aio.client import Client

from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least, at_most, report
from benchmarks.vehicle.day_beside import FLEET, Arrived, fleet, over_link, read_up
from tests.support.backlog import publish_bodies
from tests.support.day_memory import MOMENTS, STEPS, grown_mb
from tests.support.day_points import DAY_S, NODE, POINTS_A_SECOND, Tally, frames
from tests.support.memory_watch import MemoryWatch
from tests.support.rig.parts import HubRig, program, run_to_end
from tests.support.rig.vehicle import DEVICE, VehicleRig, cpu_s, vehicle

_DRAINED_MIN = 0.8  # of what the hub takes: both are measured on a machine with other work
_GROWTH_MB_MAX = 10.0
_ALL_S, _DRAIN_S = 870.0, 400.0
_POLL_S = 0.5


def run(*, quick: bool) -> dict[str, object]:
    """Keep and drain a day, a fleet's backlog and a narrow link's; print the table, return it."""
    day_s, part_s = (DAY_S // 50, 1_000) if quick else (DAY_S, 5_000)
    with scratch.directory("day_offline") as directory:
        for name in ("day", "fleet", "link"):
            (directory / name).mkdir()
        figures, watch = asyncio.run(_all(directory, day_s, part_s))
    title = f"day_offline: {day_s * POINTS_A_SECOND:,} points kept without a link, then drained"
    return report(title, figures, resident_mb=watch.stages)


async def _all(directory: Path, day_s: int, part_s: int) -> tuple[list[Figure], MemoryWatch]:
    load = os.getloadavg()[0]
    async with asyncio.timeout(_ALL_S):
        day = await Day.pass_through(directory / "day", day_s)
        together = await fleet(directory / "fleet", part_s)
        narrow = await over_link(directory / "link", part_s)
    share = day.arrived.points_s / together.points_s
    compared = [
        Figure(f"{FLEET} vehicles straight to the hub", together.points_s, "points/s"),
        Figure("drain, of what the hub takes", 100 * share, "%", at_least(100 * _DRAINED_MIN)),
    ]
    loads = [Figure("load average: before; at the end", load, "", note=f"{os.getloadavg()[0]:.1f}")]
    return [*day.figures, *compared, *narrow, *memory(day.watch), *loads], day.watch


class Day:
    """One vehicle's day, from the first batch to the last reading found at the hub."""

    def __init__(self, rig: VehicleRig, leaf: Client, hub: Client, seconds: int) -> None:
        self.figures: list[Figure] = []
        self.arrived = Arrived()
        self._rig, self._leaf, self._hub = rig, leaf, hub
        self._seconds = seconds
        self._parts = {
            "agent": rig.device.agent,
            "leaf server": rig.device.leaf,
            "hub server": rig.hub.server,
            "control plane": rig.hub.control,
        }
        self.watch = MemoryWatch({name: part.pid for name, part in self._parts.items()})

    @classmethod
    async def pass_through(cls, directory: Path, seconds: int) -> Day:
        """Start a hub and a vehicle out of its reach, and take a day through both."""
        async with (
            vehicle(directory, linked=False) as rig,
            rig.device.connection() as leaf,
            rig.hub.connection() as hub,
        ):
            day = cls(rig, leaf, hub, seconds)
            day.watch.begin("started")
            async with day.watch.each_second():
                await day._keep()
                last_seq = await day._kept_whole(directory / DEVICE)
                await day._drain(last_seq)
            await day._account(last_seq)
        return day

    async def _keep(self) -> None:
        """Hand over the day; making the batches is not the agent's work, and not timed."""
        loop = asyncio.get_running_loop()
        agent, took_s, points = self._rig.device.agent.pid, 0.0, 0
        used_s, step_s = cpu_s(agent), self._seconds // STEPS
        for step in range(STEPS):
            self.watch.begin("keeping")
            bodies = await asyncio.to_thread(frames, step * step_s, step_s)
            began_s = loop.time()
            points += await publish_bodies(self._leaf, NODE, bodies)
            took_s += loop.time() - began_s
            if moment := MOMENTS.get(step + 1):
                await self._rig.appended(self._leaf)
                self.watch.begin(f"{moment} waiting")
        if points != self._seconds * POINTS_A_SECOND:
            raise BenchmarkError(f"{points} points were kept")
        used_s = cpu_s(agent) - used_s
        self.figures += [
            Figure("acknowledged as kept", points, "points"),
            Figure("kept, by the clock", points / took_s, "points/s"),
            Figure(
                "kept, one core", points / used_s, "points/core-s", note="append to OUT included"
            ),
        ]

    async def _kept_whole(self, directory: Path) -> int:
        """Check that nothing was given up or dropped; return the last seq of the bulk lane."""
        status = await self._rig.status(self._leaf)
        ledger, lane = status["ledger"], status["lanes"]["bulk"]
        lost = ledger["evicted_messages"] + ledger["quarantined_rows"]
        if lost or status["counters"]["refused"] or lane["last_seq"] != self._seconds:
            raise BenchmarkError(f"not all was kept as it came: {status}")
        points = self._seconds * POINTS_A_SECOND
        disk = [Figure("bytes that wait for the hub's word", lane["outstanding_bytes"] / 1e6, "MB")]
        for name, pattern in (
            ("ledger", "backhaul-agent/ledger.db"),
            ("its log", "backhaul-agent/ledger.db-wal"),
            ("leaf's store", "backhaul-leaf"),
        ):
            used = sum(map(_disk_bytes, directory.glob(pattern)))
            disk.append(
                Figure(
                    f"{name} on disk", used / points, "bytes/point", note=f"{used / 1e6:,.0f} MB"
                )
            )
        self.figures += disk
        return int(lane["last_seq"])

    async def _drain(self, last_seq: int) -> None:
        """Bring the link up, and wait until both ends know that the hub holds everything."""
        loop = asyncio.get_running_loop()
        used_s = {name: cpu_s(part.pid) for name, part in self._parts.items()}
        began_s = loop.time()
        for step, moment in MOMENTS.items():
            self.watch.begin(f"draining to {moment}")
            if step == 1:
                await self._rig.relay.heal()
            await self._rig.proved(self._hub, last_seq * step // STEPS, _DRAIN_S)
        proved_s = loop.time() - began_s
        self.figures.append(Figure("proved complete after", proved_s, "s"))
        for name, part in self._parts.items():
            cores = (cpu_s(part.pid) - used_s[name]) / proved_s
            self.figures.append(Figure(f"drain: {name}", cores, "cores"))
        self.watch.begin("drained")
        async with asyncio.timeout(_DRAIN_S):
            while await self._watermark() < last_seq:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(_POLL_S)
        self.watch.look()

    async def _watermark(self) -> int:
        """Return up to where the agent knows that the hub holds everything."""
        return int((await self._rig.status(self._leaf))["lanes"]["bulk"]["watermark"])

    async def _account(self, last_seq: int) -> None:
        """Read UP from outside, and hear what the hub says of it."""
        tally = Tally(self._seconds)
        self.arrived = await read_up(self._hub, {DEVICE: tally})
        tally.require_exact("UP_00")
        lane = await self._rig.bulk_at_hub(self._hub)
        known = lane["watermark"], lane["gap_ranges"], lane["explained"], lane["lost"]
        if known != (last_seq, 0, [], 0):
            raise BenchmarkError(f"the hub does not say that it holds everything: {lane}")
        missing = await _missing(self._rig.hub)
        self.figures += [
            Figure("drained", self.arrived.points_s, "points/s"),
            Figure("in UP once, with its value", tally.points, "points"),
            Figure("frames that stand there again", tally.repeats, "frames"),
            Figure("ranges that completeness reports miss", missing, "", at_most(0)),
        ]


async def _missing(hub: HubRig) -> int:
    """Return how many ranges the vehicle's completeness reports miss.

    The hour of the run itself waits for its end; that nothing is missing of it is known before.
    """
    words = ["completeness", DEVICE, "--dir", str(hub.directory), "--json"]
    hours = json.loads(await run_to_end([program("backhaul-hub"), *words]))["hours"]
    if not hours or any(hour["explained"] for hour in hours):
        raise BenchmarkError(f"the completeness reports are not as they should be: {hours}")
    return sum(len(hour["missing"]) for hour in hours)


def memory(watch: MemoryWatch) -> list[Figure]:
    """Return what each process had resident, and how much more of it with more of the day."""
    figures = []
    moments = ", ".join(MOMENTS.values())
    for name in watch.processes:
        waiting = [watch.last(name, f"{moment} waiting") for moment in MOMENTS.values()]
        draining = [watch.peak(name, f"draining to {moment}") for moment in MOMENTS.values()]
        began, end = watch.last(name, "started"), watch.last(name, "drained")
        at_rest = f"started {began:.0f}; {moments}: {_each(waiting)}"
        under_way = f"drained to {moments}: {_each(draining)}; end {end:.0f}"
        figures += [
            Figure(f"{name}: a day waiting", waiting[-1], "MB", note=at_rest),
            Figure(f"{name}: peak", watch.peak(name), "MB", note=under_way),
            Figure(
                f"{name}: grown with the day", grown_mb(watch, name), "MB", at_most(_GROWTH_MB_MAX)
            ),
        ]
    return figures


def _each(found: list[float]) -> str:
    return ", ".join(f"{each:.0f}" for each in found)


def _disk_bytes(path: Path) -> int:
    """Return the blocks that a file takes, or all files below a directory."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_blocks * 512 for each in files)
