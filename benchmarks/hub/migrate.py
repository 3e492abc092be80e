"""Measure for how long a hub stands still when its streams go to another server.

Two servers on one machine and one disk, each message synced at both. First as it has to be done without
a mirror: UP as one snapshot, then every message of both sides read and compared. Then with the real
command, while somebody writes all the time: counted is the time from the first message that the old hub
did not take to the end of the command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats.aio.client import Client

from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.snapshots import Snapshot, copy
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.uplink.stream_digest import digest_blocks, ranges
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.rig.parts import HubRig, program, run_to_end

_UP = "UP_00"
_SUBJECT = "up.VID-001.f.battery"
_FRAME_BYTES = 6000
_WINDOW_MESSAGES = 256
_WRITE_PAUSE_S = 0.01
_STILL_S_MAX = 10.0


def run(*, quick: bool) -> dict[str, object]:
    """Run it and return the figures."""
    frames = 20_000 if quick else 170_000
    with scratch.directory("migrate") as directory:
        figures = asyncio.run(_measure(directory, frames))
    return report("a hub moves", figures, frames=frames, frame_bytes=_FRAME_BYTES)


async def _measure(directory: Path, frames: int) -> list[Figure]:
    async with (
        _server(directory / "old") as old,
        _server(directory / "new", "--keys-of", str(directory / "old" / "hub")) as new,
        old.connection() as here,
        new.connection() as there,
        old.connection_in("UP") as up,
    ):
        await _fill(old, here, up, frames)
        snapshot_s = await _by_snapshot(here, there)
        writer = asyncio.create_task(_write(up))
        began_s = SystemClock().monotonic_s()
        said = await _migrate(old, new)
        ended_s = SystemClock().monotonic_s()
        refused_s, last = await writer
        if f"{_UP}: {last:,} messages up to sequence {last:,}" not in said:
            raise BenchmarkError(f"the old hub took in {last} messages; there it says {said}")
    gigabytes = frames * _FRAME_BYTES / 1e9
    return [
        Figure("UP", gigabytes, "GB"),
        Figure("stands still, snapshot", snapshot_s, "s", note="copied, then compared"),
        Figure("mirrored while it works", refused_s - began_s, "s", note="and compared"),
        Figure("stands still, mirror", ended_s - refused_s, "s", at_most(_STILL_S_MAX)),
    ]


@asynccontextmanager
async def _server(directory: Path, *words: str) -> AsyncIterator[HubRig]:
    directory.mkdir()
    hub = HubRig(directory / "hub")
    await hub.init(*words)
    await hub.server.start()
    try:
        await hub.server.wait_listening(hub.client_port)
        yield hub
    finally:
        await hub.server.stop()


async def _fill(hub: HubRig, client: Client, vehicle: Client, frames: int) -> None:
    """Make a hub's streams, and have UP take in frames as if from a vehicle."""
    api = JetStreamApi(client)
    config = load(hub.directory)
    for declared in declared_streams(config):
        up: Json = {"subjects": ["up.>"], "max_bytes": 8 << 30} if declared["name"] == _UP else {}
        await reconcile(api, declared | up)
    async with await Registry.open(hub.directory / "hub.db"):
        pass  # it has run once
    window = asyncio.Semaphore(_WINDOW_MESSAGES)
    sent = JetStreamApi(vehicle)

    async def one(body: bytes) -> None:
        try:
            await sent.publish(_SUBJECT, body)
        finally:
            window.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(frames):
            await window.acquire()
            group.create_task(one(os.urandom(_FRAME_BYTES)))


async def _by_snapshot(here: Client, there: Client) -> float:
    """Return how long UP takes as one snapshot, compared whole; nothing of it stays there."""
    old, new = JetStreamApi(here, timeout_s=60), JetStreamApi(there, timeout_s=60)
    began_s = SystemClock().monotonic_s()
    await copy(await Snapshot.begin(here, old, _UP), there, new, lambda config: config)
    last = (await new.request(f"STREAM.INFO.{_UP}"))["state"]["last_seq"]
    sides = [await digest_blocks(client, _UP, ranges(1, last)) for client in (here, there)]
    took_s = SystemClock().monotonic_s() - began_s
    if sides[0] != sides[1]:
        raise BenchmarkError(f"{_UP} is not there as it was here")
    await new.request(f"STREAM.DELETE.{_UP}")
    return took_s


async def _write(client: Client) -> tuple[float, int]:
    """Write until it is refused; return when, in monotonic seconds, and the last sequence."""
    api, last = JetStreamApi(client), 0
    while True:
        try:
            last = (await api.publish(_SUBJECT, b"under way"))["seq"]
        except HubError:
            return SystemClock().monotonic_s(), last
        await asyncio.sleep(_WRITE_PAUSE_S)


async def _migrate(old: HubRig, new: HubRig) -> str:
    words = ["--to", new.addresses()[0]]
    leaf = ["--to-leaf", f"nats-leaf://127.0.0.1:{new.leaf_port}"]
    command = [program("backhaul-hub"), "migrate", "--dir", str(old.directory)]
    return await run_to_end([*command, *words, *leaf])
