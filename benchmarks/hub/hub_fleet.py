"""Measure what a whole fleet costs the control plane, end to end: read, stored, told, broadcast.

The benchmark starts a real hub with its control plane and enrols the vehicles. It writes the messages of `simulate`
into the streams of UP, live, as their sources would bring them; no vehicle is connected. The processor time of the
control plane is taken for each message, over turns as they come at that rate. Once for each setting: lanes read and
watermarks told alone; newest values published to TWIN_STATE besides; the same with what is told along the tree.
With `--devices`, `--rate` or `--minutes` only the last.

Vehicles have no leafs (without_leafs.py), which also takes samples of the control plane's processor time: its readers' part of it,
what it takes to tell, and the rest (by_part.py).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from nats.aio.client import Client

from backhaul_codec import hash_of, peek
from backhaul_codec.wire.envelope import NO_LINK, chain
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.config import Login
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.jwt import Rights
from backhaul_hub.private_files import write_private
from backhaul_hub.shards import up_name
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles, device_id
from backhaul_hub.simulated.lanes import Sourced
from backhaul_hub.simulated.load import Run, Store
from backhaul_hub.simulated.target import INBOX, PREFIX
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from benchmarks.gateway.options import CHOSEN, Options
from benchmarks.hub import by_part
from benchmarks.hub.without_leafs import SAMPLES
from tests.support.rig.parts import HubRig, Part
from tests.support.rig.vehicle import cpu_s

SHARDS = 4
_SHARD_VEHICLES = 5_000
"""Ten times as many as a hub's: the server of one machine has no room for 200 streams beside the rest."""
_TIMEOUT_S = 300.0
_POLL_S = 0.05
_AIMS = {by_part.READING: at_most(40), by_part.TELLING: at_most(30)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to set up a hub."""

    name: str
    state: bool
    rebroadcast: str


SETTINGS = (
    Setting("read and told", state=False, rebroadcast="live"),
    Setting("newest published", state=True, rebroadcast="live"),
    Setting("newest told, nobody listens", state=True, rebroadcast="all"),
)


def run(*, quick: bool) -> dict[str, object]:
    """Measure every setting, print the table, and return it."""
    devices, messages_s, seconds = (1_000, 500, 10) if quick else (2_000, 2_000, 20)
    chosen = CHOSEN.get(Options())
    settings: Sequence[Setting] = SETTINGS
    if chosen.devices or chosen.rate or chosen.minutes:
        settings = SETTINGS[-1:]
        devices, messages_s = chosen.devices or devices, chosen.rate or messages_s
        seconds = round(60 * chosen.minutes) if chosen.minutes else seconds
    figures: list[Figure] = []
    for setting in settings:
        with scratch.directory("hub_fleet") as directory:
            figures += asyncio.run(_measure(directory, setting, devices, messages_s, seconds))
    return report(
        f"hub_fleet: {devices:,} vehicles on {shards_of(devices)} shards, {messages_s:,} messages a second",
        figures,
    )


async def _measure(
    directory: Path, setting: Setting, devices: int, messages_s: int, seconds: int
) -> list[Figure]:
    shards = shards_of(devices)
    async with running(directory, setting, devices, shards) as hub, hub.connection() as client:
        api = JetStreamApi(client)
        async with simulator_of(hub, shards) as simulator:
            store = await Store.open(simulator, api, shards)
            # Each vehicle twice, before anything is measured: the first message of a lane costs more than those that follow.
            round_s = max(1, round(2 * devices / messages_s))
            plan = FleetPlan(
                *(devices, 60 * messages_s / devices, 1, 1, SystemClock().now_ns(), round_s)
            )
            vehicles, chained = SimulatedVehicles(plan), _Chained(store)
            await Run(vehicles, chained.send, SystemClock()).live(0.0, 0.0)
            await store.flush(api)
            await all_read(hub, api, shards)
            vehicles.plan = replace(plan, seconds=seconds)
            run = Run(vehicles, chained.send, SystemClock())
            before, used_s, parts = store.messages, _used_s(hub), by_part.read(_samples(hub))
            told = await last_seq(api, DOWN)
            began_s = asyncio.get_running_loop().time()
            memory: list[int] = []
            watching = asyncio.create_task(_watch(hub, memory))
            await run.live(0.0, 0.0)
            await store.flush(api)
            await all_read(hub, api, shards)
            elapsed_s = asyncio.get_running_loop().time() - began_s
            watching.cancel()
        control_s, server_s = (now - then for now, then in zip(_used_s(hub), used_s, strict=True))
        messages = store.messages - before
        told = await last_seq(api, DOWN) - told
        parts = {
            name: used - parts.get(name, 0.0) for name, used in by_part.read(_samples(hub)).items()
        }
    return [
        Figure(f"{setting.name}: read", messages / elapsed_s, "messages/s"),
        Figure(f"{setting.name}: told", told / elapsed_s, "words/s"),
        Figure(
            f"{setting.name}: control plane", control_s / messages * 1e6, "us/message", at_most(70)
        ),
        *(
            Figure(f"{setting.name}: {name}", used / messages * 1e6, "us/message", _AIMS.get(name))
            for name, used in sorted(parts.items())
        ),
        Figure(f"{setting.name}: control plane", control_s / elapsed_s, "cores"),
        Figure(f"{setting.name}: server", server_s / elapsed_s, "cores"),
        *(
            Figure(f"{setting.name}: memory {when}", memory[at] / 1e6, "MB")
            for when, at in (
                ("at first", 0),
                ("half-way", len(memory) // 2),
                ("at last", -1),
            )
        ),
        Figure(f"{setting.name}: latest message", run.behind_s_max, "s"),
    ]


def shards_of(devices: int) -> int:
    """Return the number of shards for so many vehicles."""
    return max(SHARDS, devices // _SHARD_VEHICLES)


class _Chained:
    """Sends messages as vehicles' agents write them: each has the hash of the one before it in its lane.

    Args:
        store: where to.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._links: dict[tuple[str, str], bytes] = {}

    async def send(self, message: Sourced) -> None:
        """Send one."""
        place, header = (message.device, message.lane), peek(message.body)
        link = self._links.get(place, NO_LINK)
        body = chain(message.body, epoch=header.epoch, seq=header.seq, link=link)
        self._links[place] = hash_of(message.leaf_subject, body)
        await self._store.send(message._replace(body=body))


async def _watch(hub: HubRig, memory: list[int]) -> None:
    while True:
        memory.append(memory_bytes(hub))
        await asyncio.sleep(1.0)


def memory_bytes(hub: HubRig) -> int:
    """Return the resident memory of the control plane."""
    return int(psutil.Process(hub.control.pid).memory_info().rss)


@asynccontextmanager
async def running(
    directory: Path, setting: Setting, devices: int, shards: int = SHARDS
) -> AsyncIterator[HubRig]:
    """Run a hub that knows these vehicles."""
    hub = HubRig(directory / "hub")
    hub.control = Part(
        "hub control plane",
        [sys.executable, "-m", "benchmarks.hub.without_leafs", "up", "--dir", str(hub.directory)],
        directory / "hub-control.log",
    )
    hub.control.before = ("env", f"{SAMPLES}={_samples(hub)}")
    await hub.init("--shards", str(shards))
    path = hub.directory / "hub.toml"
    twin = f"[twin]\nnewest = true\nstate = {json.dumps(setting.state)}\n"
    tree = f'\n[tree]\nrebroadcast = "{setting.rebroadcast}"\n'
    path.write_text(path.read_text().replace("[twin]\n", twin) + tree)
    conf = hub.directory / "hub.conf"
    conf.write_text(conf.read_text().replace("sync_interval: always", "sync_interval: 2m"))
    async with await Registry.open(hub.directory / "hub.db") as registry:
        rows = [(device_id(at), f"{at:08x}", f"key {at}", 1) for at in range(devices)]
        await registry.write([RowChange("INSERT INTO device VALUES (?, ?, ?, ?)", rows)])
    try:
        await hub.start()
        yield hub
    finally:
        await hub.stop()


@asynccontextmanager
async def simulator_of(hub: HubRig, shards: int = SHARDS) -> AsyncIterator[Client]:
    """Connect as who may put messages into UP while its streams take them: no hub but one of ours does."""
    async with hub.connection() as client:
        api = JetStreamApi(client)
        configs = {
            name: (await api.request(f"STREAM.INFO.{name}"))["config"]
            for name in map(up_name, range(shards))
        }
        for name, config in configs.items():
            await api.request(f"STREAM.UPDATE.{name}", config | _taking_in(name))
    rights = Rights(publish=(f"{PREFIX}.>",), subscribe=(f"{INBOX}.>",))
    now_s = SystemClock().now_ns() // 1_000_000_000
    login = new_login(read_keys(hub.directory), "simulator", "UP", now_s=now_s, rights=rights)
    creds = hub.directory.parent / "simulator.creds"
    write_private(creds, login.text())
    simulator = await connect(hub.addresses()[0], Login(creds=str(creds)), inbox_prefix=INBOX)
    try:
        yield simulator
    finally:
        await simulator.close()
        async with hub.connection() as client:
            for name, config in configs.items():
                await JetStreamApi(client).request(f"STREAM.UPDATE.{name}", config)


def _taking_in(stream: str) -> dict[str, Any]:
    begin = f"{PREFIX}.{stream}."
    return {
        "subjects": [f"{begin}up.>"],
        "subject_transform": {"src": f"{begin}up.>", "dest": "up.>"},
    }


async def all_read(hub: HubRig, api: JetStreamApi, shards: int = SHARDS) -> None:
    """Return when the control plane has read all that stands in UP."""
    ends = [await last_seq(api, up_name(shard)) for shard in range(shards)]
    async with (
        asyncio.timeout(_TIMEOUT_S),
        await Registry.open_existing(hub.directory / "hub.db") as registry,
    ):
        while True:
            hub.control.assert_alive()
            rows = await registry.fetch("SELECT stream, seq FROM position")
            read: dict[str, int] = {row[0]: row[1] for row in rows}
            if all(read.get(up_name(shard), 0) >= end for shard, end in enumerate(ends)):
                return
            await asyncio.sleep(_POLL_S)


async def last_seq(api: JetStreamApi, stream: str) -> int:
    """Return a stream's last sequence."""
    return int((await api.request(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


def _samples(hub: HubRig) -> Path:
    return hub.directory.parent / "samples.json"


def _used_s(hub: HubRig) -> tuple[float, float]:
    return cpu_s(hub.control.pid), cpu_s(hub.server.pid)
