"""Idle vehicles at one hub, each with a real leaf server and a real agent: what their links carry together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psutil  # type: ignore[import-untyped]

from backhaul_agent.client import connect
from backhaul_codec.kinds import BULK
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_runtime.clock import SystemClock
from benchmarks.errors import BenchmarkError
from benchmarks.gateway.ours import UP
from tests.support.hub_acts import create_device
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.stream_content import Tail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.msg import Msg

_ROUND_TRIP_S = 0.1
_SPARE_BYTES = 2 << 30
_START_AT_ONCE = 3
_ARRIVE_S = 120.0


class IdleFleet(NamedTuple):
    """The bytes that the links of so many vehicles carried in a second."""

    vehicles: int
    bytes_s: float

    def mbit_s(self, vehicles: int) -> float:
        """Return the rate of so many vehicles."""
        return self.bytes_s / self.vehicles * vehicles * 8 / 1e6


@dataclass(frozen=True, slots=True)
class Vehicles:
    """Vehicles that are there and have nothing to say."""

    count: int
    relay: ShapedRelay

    async def idle(self, seconds: float) -> IdleFleet:
        """Count the bytes of their links."""
        before = self.relay.up_bytes + self.relay.down_bytes
        await asyncio.sleep(seconds)
        carried = self.relay.up_bytes + self.relay.down_bytes - before
        return IdleFleet(self.count, carried / seconds)


@asynccontextmanager
async def idle_vehicles(directory: Path, vehicles: int) -> AsyncIterator[Vehicles]:
    """Start vehicles until there are as many or memory gets short; yield when a reading of each came."""
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub", watermark_interval_s=5.0)
        await hub.init()
        names = [f"VID-{number:03d}" for number in range(1, vehicles + 1)]
        config = load(hub.directory)
        for name in names:
            await create_device(hub.directory, config, SystemClock(), name, DeviceSettings())
        stack.push_async_callback(hub.stop)
        await hub.start()
        relay = await stack.enter_async_context(
            ShapedRelay("127.0.0.1", hub.leaf_port, round_trip_s=_ROUND_TRIP_S)
        )
        there: set[str] = set()

        def on_message(message: Msg) -> None:
            place = parse_uplink(message.subject)
            if place.lane == BULK:
                there.add(place.device)

        client = await stack.enter_async_context(hub.connection())
        tail = Tail(client, UP, on_message)
        await tail.start()
        few = asyncio.Semaphore(_START_AT_ONCE)

        async def start(name: str) -> DeviceRig | None:
            async with few:
                if psutil.virtual_memory().available < _SPARE_BYTES:
                    return None
                return await _start(hub, name, directory, relay.port, stack)

        started = [each for each in await asyncio.gather(*map(start, names)) if each is not None]
        if not started:
            raise BenchmarkError("there is no memory for a single vehicle")
        for device in started:
            async with connect(device.url) as agent:
                await agent.publish("setup", "ready", 1.0)
        await tail.until(lambda: len(there) == len(started), _ARRIVE_S, "a reading of each vehicle")
        yield Vehicles(len(started), relay)


async def _start(
    hub: HubRig, name: str, directory: Path, link_port: int, stack: AsyncExitStack
) -> DeviceRig:
    files = directory / name
    files.mkdir()
    device = DeviceRig.of(hub, name, files, links={hub.leaf_port: link_port})
    await device.enrol("--port", str(device.client_port), "--state-dir", str(files), "--open")
    stack.push_async_callback(device.stop)
    await device.start()
    return device
