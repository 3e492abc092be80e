"""A hub of three servers under load."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub.nats.stream_reader import StoredReader
from tests.integration.readings import points
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.parts import DeviceRig
from tests.support.waiting import until

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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

    async def keep_until(self, stop: asyncio.Event, vehicle: DeviceRig) -> None:
        """Have one batch after another kept, as fast as the vehicle acknowledges them."""
        async with connect(vehicle.url) as agent:
            while not stop.is_set():
                first = self.kept[vehicle.device] + 1
                await agent.publish_batch("battery", points(first, BATCH))
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

    async def at_the_hub(self) -> dict[str, set[int]]:
        """Read UP from outside: the times, in seconds, of all points of each device."""
        client = await self.world.hub_client()
        end = (await self.hub.info(STREAM))["state"]["last_seq"]
        reader, seq = StoredReader(client, STREAM, timeout_s=DEADLINE_S), 1
        found: dict[str, set[int]] = {device: set() for device in DEVICES}
        dictionaries = PlainReader()
        async with asyncio.timeout(DEADLINE_S):
            while seq <= end:
                messages = await reader.read(seq, 512)
                for message in messages:
                    uplink = parse_uplink(message.subject)
                    body = dictionaries.take(uplink, message.body)
                    if uplink.letter == "f":
                        times = [p.time // 10**9 for p in decode(body, node=uplink.node).points]
                        found[uplink.device].update(times)
                seq = messages[-1].seq + 1 if messages else seq
        return found

    async def is_whole(self) -> None:
        """Make sure that every point that was kept is in UP."""
        await self.arrives()
        held = await self.at_the_hub()
        for device, count in self.kept.items():
            assert held[device] == set(range(1, count + 1))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        world = World(tmp_path, stack, ClusterRig)
        hub = world.hub
        assert isinstance(hub, ClusterRig)
        await hub.init()
        with (hub.directory / "hub.toml").open("a") as toml:
            toml.write("\n[health]\ninterval_s = 0.1\npatience = 0\n")
        stack.push_async_callback(hub.stop)
        await hub.start()
        vehicles = []
        for device in DEVICES:
            vehicle = await DeviceRig.add(hub, device, tmp_path / device)
            stack.push_async_callback(vehicle.stop)
            await vehicle.start()
            vehicles.append(vehicle)
        yield Cluster(world, hub, vehicles)
