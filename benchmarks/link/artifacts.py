"""Measure artifacts: a link that is cut ten times, a large file's memory, and what is new meanwhile.

First a file is fetched into a slot over a link that is cut at even distances: chunks asked for twice
(counted by the agent, what a cut has lost under way included), growth of the agent's resident memory.
Then a larger one without cuts, for the memory alone. Last, over 20 kbit/s with 600 ms of round trip,
events on `live` with nothing else on the link, beside a download, and beside an upload.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import psutil  # type: ignore[import-untyped]
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.client import Agent, connect
from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.artifacts.object_store import CHUNK_BYTES, Objects
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import DEVICE, VehicleRig, vehicle
from tests.support.stream_content import Tail

CUTS = 10
RATE_BYTES_S, ROUND_TRIP_S = 2500.0, 0.6
_AWAY_S = 1.0
_LOOK_S = 0.02
_FETCH_S_MAX = 600.0
_EVERY_S = (1.5, 3.0)
_BLOCK_BYTES = 1 << 20


def run(*, quick: bool) -> dict[str, object]:
    """Measure all three, print the table, return it."""
    cut_mb, large_mb, events = (20, 50, 8) if quick else (200, 500, 25)
    with scratch.directory("artifacts") as directory:
        figures = asyncio.run(_fetches(directory / "fast", cut_mb, large_mb))
        figures += asyncio.run(_events(directory / "slow", events))
    return report("artifacts: files beside readings", figures)


async def _fetches(directory: Path, cut_mb: int, large_mb: int) -> list[Figure]:
    directory.mkdir()
    async with vehicle(directory) as rig, rig.hub.connection() as hub:
        await rig.sourced(hub)
        # Something is fetched before, so that what any first file costs is not counted.
        await _fetched(rig, hub, "warm-up", await _put(directory, hub, "warm-up", 2), cuts=0)
        digest = await _put(directory, hub, "cut", cut_mb)
        before = await _counters(rig)
        took_s, grown_mb, _ = await _fetched(rig, hub, "cut", digest, cuts=CUTS)
        after = await _counters(rig)
        twice = after[0] - before[0] - (after[1] - before[1])
        figures = [
            Figure(
                f"{cut_mb} MB, cut {CUTS} times: chunks asked twice", twice / CHUNK_BYTES, "chunks",
                at_most(CUTS), "what was under way when the link was cut",
            ),
            Figure(
                "the same: agent's memory grew by", grown_mb, "MB", at_most(10),
                f"{took_s:.0f} s, {cut_mb / took_s:.0f} MB/s; the digest was right",
            ),
        ]  # fmt: skip
        digest = await _put(directory, hub, "large", large_mb)
        took_s, grown_mb, hub_mb = await _fetched(rig, hub, "large", digest, cuts=0)
        note = f"{took_s:.0f} s, {large_mb / took_s:.0f} MB/s"
        figures += [
            Figure(f"{large_mb} MB: agent's memory grew by", grown_mb, "MB", at_most(10), note),
            Figure(f"{large_mb} MB: control plane's memory grew by", hub_mb, "MB", None,
                   "its 16 MB of chunks were full before"),
        ]  # fmt: skip
        return figures


async def _put(directory: Path, hub: Client, name: str, megabytes: int) -> str:
    """Make a file and store it; return its SHA-256."""
    path, digest, chance = directory / name, hashlib.sha256(), random.Random(megabytes)
    with path.open("wb") as file:
        for _ in range(megabytes):
            block = chance.randbytes(_BLOCK_BYTES)
            digest.update(block)
            file.write(block)
    with path.open("rb", buffering=0) as source:
        await Objects(hub).put(name, source)
    path.unlink()
    return digest.hexdigest()


async def _counters(rig: VehicleRig) -> tuple[int, int]:
    """Return bytes that the agent has asked for and moved."""
    async with connect(rig.device.url) as agent:
        status = await ArtifactClient(agent).status()
    return status["asked_bytes"], status["moved_bytes"]


async def _fetched(
    rig: VehicleRig, hub: Client, name: str, digest: str, *, cuts: int
) -> tuple[float, float, float]:
    """Have it fetched into a slot; return seconds, and MB that agent and control plane grew by."""
    agent, control = (psutil.Process(part.pid) for part in (rig.device.agent, rig.hub.control))
    at_rest = agent.memory_info().rss, control.memory_info().rss
    most = list(at_rest)
    place = Path(rig.device.agent_toml).parent / "backhaul-agent" / "artifacts"
    part, target = place / ".work" / f"{digest}.part", place / "firmware"
    known = await Objects(hub).info(name)
    if known is None:
        raise BenchmarkError(f"{name} is not in the store")
    loop = asyncio.get_running_loop()
    begun_s, left = loop.time(), cuts
    point = {"type": "firmware", "value": f"{name}@{digest}", "dtype": "text"}
    write = {"device": DEVICE, "node": "artifact", "points": [point]}
    answer = json.loads((await hub.request("hub.set", json.dumps(write).encode(), 10)).data)
    if "error" in answer:
        raise BenchmarkError(str(answer["error"]))
    while not (target.exists() and target.stat().st_size == known.size and not part.exists()):
        if loop.time() - begun_s > _FETCH_S_MAX:
            raise BenchmarkError(f"{name} did not come in {_FETCH_S_MAX:.0f} s")
        for number, process in enumerate((agent, control)):
            most[number] = max(most[number], process.memory_info().rss)
        held = part.stat().st_size if part.exists() else 0
        if left and held > known.size * (cuts - left + 1) / (cuts + 2):
            left -= 1
            await rig.relay.cut()
            await asyncio.sleep(_AWAY_S)
            await rig.relay.heal()
        await asyncio.sleep(_LOOK_S)
    took_s = loop.time() - begun_s
    with target.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest or left:
            raise BenchmarkError(f"{name} came wrong, or {left} cuts were not made")
    return took_s, (most[0] - at_rest[0]) / 1e6, (most[1] - at_rest[1]) / 1e6


async def _events(directory: Path, count: int) -> list[Figure]:
    directory.mkdir()
    link = partial(ShapedRelay, rate_bytes_s=RATE_BYTES_S, round_trip_s=ROUND_TRIP_S)
    async with (
        vehicle(directory, relay_to=link) as rig,
        rig.hub.connection() as hub,
        connect(rig.device.url) as agent,
    ):
        await rig.sourced(hub, 60.0)
        await _put(directory, hub, "large", 5)
        waits = _Waits(hub, agent)
        await waits.start()
        figures = waits.figures("nothing else", await waits.measure(count))
        for what in ("download", "upload"):
            before = (await _counters(rig))[1]
            moving = asyncio.create_task(_move(agent, directory, what))
            while (await _counters(rig))[1] == before:  # noqa: ASYNC110 - asked over NATS
                await asyncio.sleep(0.5)
            begun = asyncio.get_running_loop().time(), (await _counters(rig))[1]
            found = await waits.measure(count)
            took_s = asyncio.get_running_loop().time() - begun[0]
            moved = (await _counters(rig))[1] - begun[1]
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
            if what == "download":
                await agent.ask("agent.artifact.done", b'{"name": "large"}')
            if moved == 0:
                raise BenchmarkError(f"the {what} stood still")
            note = f"{100 * moved / took_s / RATE_BYTES_S:.0f}% of the link carried the file"
            figures += waits.figures(f"beside a {what}", found, note)
        return figures


async def _move(agent: Agent, directory: Path, what: str) -> None:
    files = ArtifactClient(agent)
    if what == "download":
        await files.fetch("large", directory / "there")
    path = directory / "large.log"
    path.write_bytes(random.Random(3).randbytes(5 * _BLOCK_BYTES))
    await files.sent(await files.hand_over(path))


class _Waits:
    """How long events take from publishing to the hub's stream."""

    def __init__(self, hub: Client, agent: Agent) -> None:
        self._agent = agent
        self._sent: dict[int, float] = {}
        self._waits_s: list[float] = []
        self._number = 0
        self._chance = random.Random(1)
        self._tail = Tail(hub, "UP_00", self._arrived)

    async def start(self) -> None:
        await self._tail.start()

    def _arrived(self, message: Msg) -> None:
        if parse_uplink(message.subject).node == "probe":
            number = int(str(decode(message.data).points[0].value))
            self._waits_s.append(asyncio.get_running_loop().time() - self._sent.pop(number))

    async def measure(self, count: int) -> list[float]:
        """Publish events; return how long each took, seconds."""
        self._waits_s = []
        for _ in range(count):
            await asyncio.sleep(self._chance.uniform(*_EVERY_S))
            self._number += 1
            self._sent[self._number] = asyncio.get_running_loop().time()
            await self._agent.publish("probe", "n", str(self._number), lane="live")
        await self._tail.until(lambda: not self._sent, 60.0, "the last event")
        return self._waits_s

    def figures(self, beside: str, waits_s: list[float], note: str = "") -> list[Figure]:
        """Return what goes into the table."""
        return [
            Figure(f"event, {beside}: median", median(waits_s), "s", None, note),
            Figure(f"event, {beside}: 90%", quantiles(waits_s, n=10)[-1], "s"),
        ]
