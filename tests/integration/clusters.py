"""A hub of three servers under load."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.uplink.audit import require_gone
from tests.integration.older import run_mixed
from tests.integration.readings import points
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import DeviceRig
from tests.support.waiting import until

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path


STREAM = "UP_00"


DEVICES = ("VID-001", "VID-002")


BATCH = 250


DEADLINE_S = 120.0


class Cluster:
    """Three servers, a control plane, two vehicles and what was kept on each."""

    def __init__(self, world: World, hub: ClusterRig, vehicles: list[DeviceRig]) -> None:
        self.world = world
        self.hub = hub
        self.vehicles = vehicles
        self.kept = dict.fromkeys(DEVICES, 0)
        self.points = points
        """Makes what is kept: points with these numbers, from the first on."""

    async def keep_until(self, stop: asyncio.Event, vehicle: DeviceRig) -> None:
        """Have one batch after another kept, as fast as the vehicle acknowledges them."""
        async with connect(vehicle.url) as agent:
            while not stop.is_set():
                first = self.kept[vehicle.device] + 1
                await agent.publish_batch("battery", self.points(first, BATCH))
                self.kept[vehicle.device] += BATCH
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Have both vehicles keep points meanwhile."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for vehicle in self.vehicles:
                group.create_task(self.keep_until(stop, vehicle))
            try:
                yield
            finally:
                stop.set()

    async def more(self, batches: int = 8) -> None:
        """Wait until the vehicles have kept some more."""
        wanted = {device: count + batches * BATCH for device, count in self.kept.items()}
        await until(
            lambda: all(self.kept[device] >= count for device, count in wanted.items()),
            deadline_s=DEADLINE_S,
        )

    async def arrives(self) -> None:
        """Wait until the hub's watermark covers all frames that were kept, without a gap or a loss."""
        frames = {device: count // BATCH for device, count in self.kept.items()}
        report = await self.world.until(
            lambda report: all(
                lane(report, device).get("watermark", 0) >= count
                for device, count in frames.items()
            ),
            deadline_s=DEADLINE_S,
        )
        for device in DEVICES:
            assert lane(report, device)["gaps"] == []
            assert lane(report, device)["lost"] == 0
        log = self.hub.control.logged().decode()
        assert "up_is_not_as_it_was_read" not in log
        assert "up_lost_messages" not in log
        assert "stream_was_deleted" not in log
        self.hub.control.assert_alive()

    async def at_the_hub(self) -> dict[str, Counter[int]]:
        """Read UP from outside: how often it holds each point of each device, by its time in seconds.

        Messages in one place of a lane are one. What a server leaves out is asked for again, of any.
        """
        client = await self.world.hub_client()
        api = JetStreamApi(client, patience_s=DEADLINE_S)
        end = (await self.hub.info(STREAM))["state"]["last_seq"]
        reader, seq = StoredReader(client, STREAM, timeout_s=DEADLINE_S), 1
        places: dict[tuple[str, str, int, int], list[int]] = {}
        dictionaries = PlainReader()
        async with asyncio.timeout(DEADLINE_S):
            while seq <= end:
                messages = await reader.read(seq, 512)
                try:
                    await require_gone(api, reader, messages, seq, last := _end(messages, end))
                except HubError:
                    continue
                for message in messages:
                    uplink = parse_uplink(message.subject)
                    body = dictionaries.take(uplink, message.body)
                    if uplink.letter == "f":
                        frame = decode(body, node=uplink.node)
                        place = uplink.device, uplink.lane, frame.epoch, frame.seq
                        places[place] = [point.time // 10**9 for point in frame.points]
                seq = last + 1
        found: dict[str, Counter[int]] = {device: Counter() for device in DEVICES}
        for (device, *_), times in places.items():
            found[device].update(times)
        return found

    async def is_whole(self) -> None:
        """Wait until every point that was kept is in UP, and make sure that none is there twice."""
        await self.arrives()
        kept = {device: Counter(range(1, count + 1)) for device, count in self.kept.items()}
        held: dict[str, Counter[int]] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                while held != kept:  # a batch may be of more frames than one
                    held = await self.at_the_hub()
        for device, counts in kept.items():
            missing, more = counts - held[device], held[device] - counts
            assert not missing, f"{device}: {len(missing)} from {min(missing)} to {max(missing)}"
            assert not more, f"{device}: {more.most_common(5)}"


async def alike(hub: ClusterRig) -> bool:
    """Tell whether every server says that it holds the same of UP."""
    found = (await hub.held()).get(STREAM, {})
    counts = {(each.first_seq, each.last_seq, each.messages) for each in found.values()}
    return len(found) == len(NAMES) and len(counts) == 1


def _end(messages: list[Stored], end: int) -> int:
    """Return up to where an answer says what the stream has."""
    return messages[-1].seq if messages else end


async def _as_it_is(hub: ClusterRig) -> None:
    """Change nothing."""


@asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    before_start: Callable[[ClusterRig], Awaitable[None]] = _as_it_is,
    servers: Mapping[str, str] = MappingProxyType({}),
    older_path: str = "",
) -> AsyncIterator[Cluster]:
    """Run a hub of three servers, with conditions shown at once, and two vehicles.

    ``before_start``: is given the hub once its files are there. ``servers``: of devices that connect to one server alone.
    ``older_path``: the PYTHONPATH of a hub of before (`older.older_packages`).
    """
    async with AsyncExitStack() as stack:
        world = World(tmp_path, stack, ClusterRig)
        hub = world.hub
        assert isinstance(hub, ClusterRig)
        if older_path:
            hub.control.before = "env", f"PYTHONPATH={older_path}"
            words = {"backhaul-hub": list(hub.control.before)}
            hub.run = partial(run_mixed, lambda name: words.get(name, []))
        await hub.init()
        path = hub.directory / "hub.toml"
        path.write_text(f"{path.read_text()}\n[health]\ninterval_s = 0.1\npatience = 0\n")
        await before_start(hub)
        stack.push_async_callback(hub.stop)
        await hub.start()
        vehicles = []
        for device in DEVICES:
            only = hub.leaf_ports.get(servers.get(device, ""))
            links = dict.fromkeys(hub.leaf_ports.values(), only) if only else None
            vehicle = await DeviceRig.add(hub, device, tmp_path / device, links=links)
            stack.push_async_callback(vehicle.stop)
            await vehicle.start()
            vehicles.append(vehicle)
        yield Cluster(world, hub, vehicles)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running(tmp_path) as started:
        yield started
