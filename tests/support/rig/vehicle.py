"""One vehicle and its hub, all of it real: servers, control plane, agent, and the link between."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nats
import psutil  # type: ignore[import-untyped]

from backhaul_hub.shards import PUSH
from tests.support.errors import TrialError
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client

DEVICE = "VID-001"
_POLL_S = 0.02
HUB_WATERMARK_S = 5.0  # what `backhaul-hub init` writes where it is told nothing else


@dataclass(slots=True)
class Vehicle:
    """A device, and the hub that it belongs to."""

    hub: HubRig
    device: DeviceRig

    async def status(self, client: Client) -> dict[str, Any]:
        """Return the agent's status; `client` is connected to the device's leaf server."""
        answer = await client.request("agent.status", b"", timeout=30)
        found: dict[str, Any] = json.loads(answer.data)
        return found

    async def appended(self, client: Client, timeout_s: float = 120.0) -> dict[str, Any]:
        """Wait until all that the agent has kept is in OUT; return its status.

        Raises:
            TrialError: it was not in time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while loop.time() < deadline_s:
            self.device.agent.assert_alive()
            found = await self.status(client)
            lanes = found["lanes"].values()
            if not found["ledger"]["staged_points"] and all(
                lane["appended"] >= lane["last_seq"] for lane in lanes
            ):
                return found
            await asyncio.sleep(_POLL_S)
        raise TrialError(f"the agent has not appended all in {timeout_s:.0f} s")

    async def proved(self, client: Client, last_seq: int, timeout_s: float) -> dict[str, Any]:
        """Wait until the control plane says that the hub holds `bulk` up to `last_seq`.

        `client` is connected to the hub. Returns the lane's report.

        Raises:
            TrialError: it did not in time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while loop.time() < deadline_s:
            self.hub.control.assert_alive()
            lane = await self.bulk_at_hub(client)
            if lane.get("watermark", 0) >= last_seq:
                return lane
            await asyncio.sleep(_POLL_S)
        raise TrialError(f"the hub has not proved seq {last_seq} in {timeout_s:.0f} s")

    async def bulk_at_hub(self, client: Client) -> dict[str, Any]:
        """Return what the control plane reports of the device's bulk lane; empty before the first."""
        answer = await client.request("hub.devices", b"", timeout=30)
        for device in json.loads(answer.data)["devices"]:
            if device["device"] == self.device.device:
                lane: dict[str, Any] = device["lanes"].get("bulk", {})
                return lane
        return {}


@dataclass(slots=True)
class VehicleRig(Vehicle):
    """A vehicle, and the relay that stands for its radio link."""

    relay: Relay

    async def sourced(self, client: Client, timeout_s: float = 30.0) -> None:
        """Wait until the hub hears both lanes, sourced or pushed, link and consumers standing.

        Raises:
            TrialError: it was not in time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while loop.time() < deadline_s:
            answer = await client.request("upapi.STREAM.INFO.RELAY_00", b"", timeout=30)
            sources = json.loads(answer.data).get("sources") or []
            if (len(sources) == 2 or PUSH in {each["name"] for each in sources}) and all(
                0 <= source["active"] < 2_000_000_000 and not source.get("error")
                for source in sources
            ):
                return
            await asyncio.sleep(_POLL_S)
        raise TrialError(f"the hub does not source {DEVICE} after {timeout_s:.0f} s")


@asynccontextmanager
async def vehicle(
    directory: Path,
    *,
    hub_runs: bool = True,
    linked: bool = True,
    hub_sync_interval: str = "always",
    agent_settings: str = "",
    push: bool = True,
    relay_to: Callable[[str, int], Relay] = Relay,
    link_mode: str = "",
    schedule_s: float = 3600.0,
) -> AsyncIterator[VehicleRig]:
    """Start a hub (unless told not to) and one vehicle; stop every process at the end.

    Args:
        directory: where both keep their files; exists.
        hub_runs: whether the hub stays up once the device is enrolled.
        linked: whether the link is up at once; `relay.heal()` brings it up later.
        hub_sync_interval: when the hub's server syncs its store to disk; "always" is our default.
        agent_settings: TOML tables to add to agent.toml.
        push: whether lanes that trickle are pushed.
        relay_to: makes the link; given the host and port of the hub.
        link_mode: when the link is up; empty for always.
        schedule_s: time between visits, where the mode has a schedule.
    """
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub", watermark_interval_s=HUB_WATERMARK_S)
        await hub.init()
        _set_sync_interval(directory / "hub" / "hub.conf", hub_sync_interval)
        stack.push_async_callback(hub.stop)
        # A device is enrolled through the server, even where the hub is then out of reach.
        await hub.start()
        relay = await stack.enter_async_context(relay_to("127.0.0.1", hub.leaf_port))
        device = await DeviceRig.add(
            hub, DEVICE, directory / DEVICE, link_port=relay.port, link_mode=link_mode
        )
        text = device.agent_toml.read_text()
        text = text.replace("= 3600.0", f"= {schedule_s}")
        if not push:
            text = text.replace("[link]\n", "[link]\npush = false\n")
        device.agent_toml.write_text(text)
        if agent_settings:
            device.agent_toml.write_text(device.agent_toml.read_text() + "\n" + agent_settings)
        if not hub_runs:
            await hub.stop()
        if not linked:
            await relay.cut()
        stack.push_async_callback(device.stop)
        await device.start()
        yield VehicleRig(hub, device, relay)


@asynccontextmanager
async def connection(url: str) -> AsyncIterator[Client]:
    """Connect to a server that runs; close at the end."""
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


def cpu_s(process: int) -> float:
    """Return the processor time that a process has used, all its threads, in seconds."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def _set_sync_interval(conf: Path, interval: str) -> None:
    text = conf.read_text()
    if text.count("sync_interval: always") != 1:
        raise TrialError(f"{conf} does not set sync_interval as expected")
    conf.write_text(text.replace("sync_interval: always", f"sync_interval: {interval}"))
