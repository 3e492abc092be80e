"""Measure the memory of a control plane that knows a fleet, and how long it loads.

A real hub takes in the messages of one vehicle of `simulate`. The benchmark then copies that vehicle's rows of hub.db
for each vehicle of the fleet, starts the control plane, and subtracts the memory of a control plane with one vehicle.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.lane_rows import ReadPosition, forget_turns, read_lanes, store_read
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles, device_id
from backhaul_hub.simulated.load import Run, Store
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.figures import Figure, report
from benchmarks.gateway.options import CHOSEN, Options
from benchmarks.hub.hub_fleet import SETTINGS, SHARDS, all_read, memory_bytes, running, simulator_of
from tests.support.rig.parts import HubRig
from tests.support.rig.vehicle import cpu_s

_FLEETS = (10_000, 100_000)
_SECONDS = 3


def run(*, quick: bool) -> dict[str, object]:
    """Measure each fleet, print the table, and return it."""
    chosen = CHOSEN.get(Options()).devices
    figures: list[Figure] = []
    for devices in (chosen,) if chosen else _FLEETS[:1] if quick else _FLEETS:
        with scratch.directory("hub_memory") as directory:
            figures += asyncio.run(_measure(directory, devices))
    return report("hub_memory: a control plane that knows so many vehicles", figures)


async def _measure(directory: Path, devices: int) -> list[Figure]:
    async with running(directory, SETTINGS[-1], 1) as hub:
        await _live(hub)
        await hub.control.stop()
        empty, _, _ = await _loaded(hub)
        await asyncio.to_thread(_multiply, hub.directory / "hub.db", devices)
        memory, used_s, took_s = await _loaded(hub)
    name = f"{devices:,} vehicles"
    return [
        Figure(f"{name}: memory", (memory - empty) / devices, "bytes/vehicle"),
        Figure(f"{name}: memory of all", memory / 1e6, "MB"),
        Figure(f"{name}: loaded with", used_s, "core-s"),
        Figure(f"{name}: ready after", took_s, "s"),
    ]


async def _live(hub: HubRig) -> None:
    async with hub.connection() as client, simulator_of(hub) as simulator:
        api = JetStreamApi(client)
        store = await Store.open(simulator, api, SHARDS)
        plan = FleetPlan(1, 120, 1, 1, SystemClock().now_ns(), _SECONDS)
        run = Run(SimulatedVehicles(plan), store.send, SystemClock())
        await run.introduce()
        await run.live(0.0, 0.0)
        await store.flush(api)
        await all_read(hub, api)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        lanes = await read_lanes(registry)
        await store_read(registry, "none", ReadPosition(), lanes, [forget_turns(1 << 62)])


async def _loaded(hub: HubRig) -> tuple[int, float, float]:
    """Start the control plane; return its memory (bytes), the processor time that it took, and the seconds."""
    clock = asyncio.get_running_loop().time
    began_s = clock()
    await hub.start_control()
    took_s = clock() - began_s
    used_s, memory = cpu_s(hub.control.pid), memory_bytes(hub)
    await hub.control.stop()
    return memory, used_s, took_s


def _multiply(path: Path, devices: int) -> None:
    """Write the rows about the first vehicle for each of a fleet."""
    names = [(device_id(at), f"{at:024x}") for at in range(1, devices)]
    with closing(sqlite3.connect(path)) as db, db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            if "device" not in columns:
                continue
            at, marks = columns.index("device"), ",".join("?" * len(columns))
            for row in db.execute(f"SELECT * FROM {table}").fetchall():
                db.executemany(
                    f"INSERT INTO {table} VALUES ({marks})",
                    ((*row[:at], name, *row[at + 1 :]) for name, _ in names),
                )
        db.executemany("INSERT INTO device VALUES (?1, ?2, 'key ' || ?2, 1)", names)
