"""Measure what a power cut takes from a leaf's stream, and from the agent's ledger.

Each store is on a file system of its own (ext4 in an image, on a loop device), and messages are
published at a fixed rate, each acknowledged. Then the writer is stopped for a moment and the image
is copied: the copy holds what the file system had given to its disk, no page cache, which is what a
power cut leaves. The copy is mounted (ext4 replays its journal), the store opened there, and what
was acknowledged and is not in it is counted. After that `kill -9`, and the live store is counted:
a crash of the program alone. Needs root, for the loop device.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nats.aio.client import Client

from backhaul_agent.errors import LedgerError
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
from backhaul_codec import Point, encode_point
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from benchmarks import scratch
from benchmarks.figures import Figure, report
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port
from tests.support.rig.vehicle import connection

_IMAGE_BYTES = 256 << 20
_RATE_S = 500.0
_SUBJECT = "p.battery.voltage.%"
_VALUE = "x" * 200
_STREAM = "OUT_live"


class Store(Protocol):
    """Something that acknowledges messages."""

    async def keep(self, number: int) -> None:
        """Store a message; it is acknowledged when this returns."""
        ...

    def pause(self) -> None:
        """Stop writing, at once."""
        ...

    def go_on(self) -> None:
        """Write on."""
        ...


@dataclass(frozen=True, slots=True)
class Lost:
    """What one kind of store lost."""

    acknowledged: list[int]
    by_cut: list[int]
    """Messages lost, for each cut; all, where the store could not be opened any more."""
    by_kill: int
    rate_s: float
    """What it takes one after another, as fast as it can."""


def run(*, quick: bool) -> dict[str, object]:
    """Cut the power under each kind of store, print the table, and return it."""
    figures: list[Figure] = []
    with scratch.directory("store_cut") as directory:
        if not _may_mount(directory):
            print("store_cut: skipped, it may not mount a loop device here")
            return {"skipped": "may not mount a loop device"}
        seconds = (3.0, 7.0) if quick else (3.0, 7.0, 12.0, 17.0)
        for interval, settled in (("1s", False), ("2m", True), ("1s", True), ("always", False)):
            lost = asyncio.run(_cut_stream(directory, interval, seconds, settled=settled))
            age = ", settled" if settled else ""
            figures += _figures(f"JetStream, sync_interval {interval}{age}", lost)
        figures += _figures(
            "ledger: SQLite, WAL, FULL", asyncio.run(_cut_ledger(directory, seconds))
        )
    return report(f"store_cut: {_RATE_S:.0f} messages a second, each acknowledged", figures)


def _figures(name: str, lost: Lost) -> list[Figure]:
    cuts = ", ".join(
        f"{gone:,} of {kept:,}" for gone, kept in zip(lost.by_cut, lost.acknowledged, strict=False)
    )
    return [
        Figure(f"{name}: lost by a power cut", sum(lost.by_cut), "messages", note=cuts),
        Figure(f"{name}: lost by kill -9", lost.by_kill, "messages"),
        Figure(f"{name}: one after another", lost.rate_s, "messages/s"),
    ]


class _Stream:
    """A stream of a nats-server."""

    def __init__(self, client: Client, server: Part) -> None:
        self._api = JetStreamApi(client)
        self._server = server

    async def keep(self, number: int) -> None:
        await self._api.publish(_SUBJECT, f"{number:08d}{_VALUE}".encode())

    def pause(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)


class _Ledger:
    """The agent's own; it writes in this process, so whoever blocks it has stopped it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def keep(self, number: int) -> None:
        body = encode_point(Point("battery", "voltage", number, _VALUE), epoch=0, seq=0)
        await self._ledger.commit(LedgerChanges(messages=[Outgoing("live", _SUBJECT, body)]))

    def pause(self) -> None:
        """Do nothing: no commit is under way."""

    def go_on(self) -> None:
        """Do nothing."""


async def _cut_stream(
    directory: Path, interval: str, seconds: tuple[float, ...], *, settled: bool
) -> Lost:
    """Cut the power under a stream; `settled`: what describes it had reached the disk before."""
    image = directory / f"stream-{interval}-{settled}.img"
    with _disk(image) as disk:
        async with _server(disk, interval) as server:
            async with connection(server.url) as client:
                config = {"name": _STREAM, "subjects": ["p.>"], "storage": "file"}
                await JetStreamApi(client).request(f"STREAM.CREATE.{_STREAM}", config)
                if settled:
                    _sync(disk)
                store = _Stream(client, server.part)
                acknowledged, copies, rate_s = await _fill(store, image, seconds)
            await server.part.stop(signal.SIGKILL)
        by_kill = acknowledged[-1] - await _in_stream(disk)
    by_cut = []
    for kept, copy in zip(acknowledged, copies, strict=False):
        with _mounted(copy) as disk:
            by_cut.append(kept - await _in_stream(disk))
    return Lost(acknowledged, by_cut, by_kill, rate_s)


async def _cut_ledger(directory: Path, seconds: tuple[float, ...]) -> Lost:
    image = directory / "ledger.img"
    with _disk(image) as disk:
        ledger = await _open(disk)
        try:
            acknowledged, copies, rate_s = await _fill(_Ledger(ledger), image, seconds)
            # A killed process leaves database and log as they are now.
            killed = directory / "killed"
            shutil.copytree(disk, killed, ignore=shutil.ignore_patterns("lost+found"))
        finally:
            await ledger.close()
        by_kill = acknowledged[-1] - await _in_ledger(killed)
    by_cut = []
    for kept, copy in zip(acknowledged, copies, strict=False):
        with _mounted(copy) as disk:
            by_cut.append(kept - await _in_ledger(disk))
    return Lost(acknowledged, by_cut, by_kill, rate_s)


async def _fill(
    store: Store, image: Path, seconds: tuple[float, ...]
) -> tuple[list[int], list[Path], float]:
    """Publish at the rate; at each of `seconds` copy the image. Then publish as fast as it goes.

    Returns how much was acknowledged at each cut, and at the end; the copies; and that rate.
    """
    loop = asyncio.get_running_loop()
    acknowledged: list[int] = []
    copies: list[Path] = []
    count = 0
    began_s = loop.time()
    for number, cut_s in enumerate(seconds):
        while (now_s := loop.time() - began_s) < cut_s:
            if count < now_s * _RATE_S:
                await store.keep(count)
                count += 1
            else:
                await asyncio.sleep(0.001)
        acknowledged.append(count)
        copies.append(image.with_suffix(f".{number}"))
        store.pause()
        try:
            # Not on a thread: nobody must write meanwhile.
            _copy(image, copies[-1])
        finally:
            store.go_on()
    fast_s = time.perf_counter()
    for _ in range(1000):
        await store.keep(count)
        count += 1
    acknowledged.append(count)
    return acknowledged, copies, 1000 / (time.perf_counter() - fast_s)


@dataclass(slots=True)
class _Server:
    part: Part
    url: str


@asynccontextmanager
async def _server(disk: Path, interval: str) -> AsyncIterator[_Server]:
    port = free_port()
    conf = disk.parent / f"{disk.name}.conf"
    conf.write_text(
        f'server_name: cut\nlisten: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{disk / "js"}", sync_interval: "{interval}" }}\n'
    )
    part = Part("server", [program("nats-server"), "-c", str(conf)], conf.with_suffix(".log"))
    await part.start()
    try:
        await part.wait_listening(port)
        yield _Server(part, f"nats://127.0.0.1:{port}")
    finally:
        await part.stop()


async def _in_stream(disk: Path) -> int:
    """Return how many messages a server finds in a store; none where it finds no stream."""
    async with _server(disk, "2m") as server, connection(server.url) as client:
        try:
            info = await JetStreamApi(client).stream_info(_STREAM)
        except HubError:
            return 0
        return int(info["state"]["messages"]) if info else 0


async def _open(directory: Path) -> Ledger:
    return await Ledger.open(
        directory / "ledger.db", device="VID-001", bytes_max=1 << 30, epoch=lambda: 7
    )


async def _in_ledger(directory: Path) -> int:
    try:
        ledger = await _open(directory)
    except LedgerError:
        return 0
    try:
        return len(await ledger.read("live", 1, 10_000_000))
    finally:
        await ledger.close()


def _may_mount(directory: Path) -> bool:
    try:
        with _disk(directory / "try.img"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def _disk(image: Path) -> Iterator[Path]:
    """Make a file system in an image, and mount it."""
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    with _mounted(image) as directory:
        yield directory


@contextmanager
def _mounted(image: Path) -> Iterator[Path]:
    directory = image.with_name(image.name + ".mnt")
    directory.mkdir()
    subprocess.run(["mount", "-o", "loop", image, directory], check=True, capture_output=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def _sync(disk: Path) -> None:
    subprocess.run(["sync", "-f", disk], check=True)


def _copy(image: Path, copy: Path) -> None:
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)
