"""Measure what a hub of three servers costs, and for how long nothing is stored when one dies.

Three servers and a vehicle on one machine and one disk: what a cluster costs here, where each message
is synced three times to the same disk, is more than on three machines.

Cost: a vehicle has kept frames while the hub was away; then the hub starts, and the time between the
first and the last that its stream takes in is measured, with one server and with three. Pause: under a
steady load the server that leads the stream is killed, five times; counted is the longest time around
it in which the stream took nothing in, by the servers' own stamps.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

from nats.aio.client import Client

from backhaul_codec import peek
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.backlog import publish_frames
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.vehicle import DEVICE

_STREAM = "UP_00"
_TIMEOUT_S = 240.0
_SETTLED_S = 5.0
_LOAD_PAUSE_S = 0.05
_STEADY_FRAMES = 40
_PAUSE_S_MAX = 10.0


def run(*, quick: bool) -> dict[str, object]:
    """Run it and return the figures."""
    frames, deaths = (1000, 1) if quick else (5000, 5)
    with scratch.directory("cluster") as directory:
        figures = asyncio.run(_measure(directory, frames, deaths))
    return report("a cluster of three", figures, frames=frames)


async def _measure(directory: Path, frames: int, deaths: int) -> list[Figure]:
    one = await _drain(directory / "one", HubRig, frames)
    three = await _drain(directory / "three", ClusterRig, frames)
    pauses = sorted(await _pauses(directory / "deaths", deaths))
    return [
        Figure("one server", one, "frames/s", note="each synced"),
        Figure("three servers", three, "frames/s", note="each synced by all, on one disk"),
        Figure("three servers, of one", three / one, "times"),
        Figure("pause, least", pauses[0], "s"),
        Figure("pause, median", pauses[len(pauses) // 2], "s", note=f"{deaths} leaders killed"),
        Figure("pause, longest", pauses[-1], "s", at_most(_PAUSE_S_MAX)),
    ]


@asynccontextmanager
async def _connected(hub: HubRig) -> AsyncIterator[Client]:
    async with hub.connection(max_reconnect_attempts=-1, reconnect_time_wait=0.2) as client:
        yield client


async def _hub_and_vehicle(
    stack: AsyncExitStack, directory: Path, kind: type[HubRig]
) -> tuple[HubRig, DeviceRig]:
    """Make a hub that does not run yet, and start a vehicle of it."""
    hub = kind(directory / "hub")
    await hub.init()
    vehicle = await DeviceRig.add(hub, DEVICE, directory / DEVICE)
    stack.push_async_callback(vehicle.stop)
    await vehicle.start()
    return hub, vehicle


async def _drain(directory: Path, kind: type[HubRig], frames: int) -> float:
    """Return how many frames a second a hub takes in of what a vehicle has kept."""
    directory.mkdir()
    async with AsyncExitStack() as stack:
        hub, vehicle = await _hub_and_vehicle(stack, directory, kind)
        async with vehicle.connection() as local:
            await publish_frames(local, frames)
        stack.push_async_callback(hub.stop)
        await hub.start()
        client = await stack.enter_async_context(_connected(hub))
        stored = await _whole(client, frames)
        stamps = [
            message.stored_ns
            for message in stored
            if parse_uplink(message.subject).letter == FRAME.letter
        ]
        return (len(stamps) - 1) / ((stamps[-1] - stamps[0]) / 1e9)


async def _pauses(directory: Path, deaths: int) -> list[float]:
    """Return the longest time without a message around each death of the leader, in seconds."""
    directory.mkdir()
    async with AsyncExitStack() as stack:
        hub, vehicle = await _hub_and_vehicle(stack, directory, ClusterRig)
        assert isinstance(hub, ClusterRig)
        stack.push_async_callback(hub.stop)
        await hub.start()
        client = await stack.enter_async_context(_connected(hub))
        local = await stack.enter_async_context(vehicle.connection())
        stop, kept, pauses = asyncio.Event(), [0], list[float]()
        async with asyncio.TaskGroup() as group:
            group.create_task(_load(local, stop, kept))
            for _ in range(deaths):
                pauses.append(await _pause(hub, client, kept))
            stop.set()
        await _whole(client, kept[0])
        return pauses


async def _pause(hub: ClusterRig, client: Client, kept: list[int]) -> float:
    await hub.whole(_STREAM)
    wanted = kept[0] + _STEADY_FRAMES
    while kept[0] < wanted:  # noqa: ASYNC110 - a count, not an event
        await asyncio.sleep(_LOAD_PAUSE_S)
    await _whole(client, kept[0])
    before = (await hub.info(_STREAM))["state"]["last_seq"]
    leader = await hub.leader(_STREAM)
    await hub.servers[leader].stop(signal.SIGKILL)
    await asyncio.sleep(_SETTLED_S)
    await _whole(client, kept[0])
    stamps = [message.stored_ns for message in await _read(client, before)]
    await hub.start_server(leader)
    return max(later - earlier for earlier, later in pairwise(stamps)) / 1e9


async def _load(client: Client, stop: asyncio.Event, kept: list[int]) -> None:
    while not stop.is_set():
        await publish_frames(client, 1)
        kept[0] += 1
        await asyncio.sleep(_LOAD_PAUSE_S)


async def _whole(client: Client, frames: int) -> list[Stored]:
    """Wait until the stream has so many different frames of the vehicle; return all messages.

    Raises:
        BenchmarkError: it had not in four minutes.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _TIMEOUT_S
    found: list[Stored] = []
    while loop.time() < end_s:
        found += await _read(client, found[-1].seq + 1 if found else 1)
        if (
            len(
                {
                    peek(each.body).seq
                    for each in found
                    if parse_uplink(each.subject).letter == FRAME.letter
                }
            )
            >= frames
        ):
            return found
        await asyncio.sleep(0.2)
    raise BenchmarkError(f"not all of {frames} frames are in {_STREAM} after {_TIMEOUT_S:g} s")


async def _read(client: Client, seq: int) -> list[Stored]:
    found: list[Stored] = []
    while part := await StoredReader(client, _STREAM).read(seq, 512):
        found += part
        seq = part[-1].seq + 1
    return found
