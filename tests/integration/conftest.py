"""A real hub and real vehicles, started by the demonstration's rig and always stopped."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

import nats
import pytest

from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.patient import PatientClient
from tests.support.rig.relay import Relay
from tests.support.run_here import run_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from nats.aio.client import Client

DEADLINE_S = 120.0
AnyRelay = TypeVar("AnyRelay", bound=Relay)


class World:
    """One hub and its vehicles, each behind a relay of its own."""

    def __init__(self, directory: Path, stack: AsyncExitStack, kind: type[HubRig] = HubRig) -> None:
        self.directory = directory
        self.hub = kind(directory / "hub", watermark_interval_s=0.2, run=run_here)
        self.shards = 1
        """How many shards of UP there are, those included that the hub reads no more."""
        self._stack = stack

    async def start(self) -> Self:
        await self.hub.init()
        self._stack.push_async_callback(self.hub.stop)
        await self.hub.start()
        return self

    async def vehicle(self, device: str = "VID-001") -> tuple[DeviceRig, Relay]:
        """Enrol and start a vehicle."""
        return await self.vehicle_behind(Relay("127.0.0.1", self.hub.leaf_port), device)

    async def sourced_vehicle(self) -> DeviceRig:
        """Start VID-001, which pushes nothing: whatever comes into its OUT reaches the hub, the agent's or not."""
        relay = Relay("127.0.0.1", self.hub.leaf_port)
        return (await self.vehicle_behind(relay, push=False))[0]

    async def vehicle_behind(
        self,
        link: AnyRelay,
        device: str = "VID-001",
        *,
        link_mode: str = "",
        nodes: Sequence[str] = (),
        ping_s: int = 0,
        **settings: object,
    ) -> tuple[DeviceRig, AnyRelay]:
        """Enrol and start a vehicle whose link is this one.

        ``nodes``: those with streams of their own. ``ping_s``: how often its leaf server looks whether the link is dead, if not as usual. ``settings``: keys of [link].
        """
        relay = link
        await self._stack.enter_async_context(link)
        rig = await DeviceRig.add(
            self.hub,
            device,
            self.directory / device,
            link_port=relay.port,
            link_mode=link_mode,
            nodes=nodes,
        )
        text = rig.agent_toml.read_text()
        for key, value in settings.items():
            text = re.sub(rf"^{key} = .*\n", "", text, flags=re.MULTILINE)
            text = text.replace("[link]\n", f"[link]\n{key} = {json.dumps(value)}\n")
        rig.agent_toml.write_text(text)
        if ping_s:
            conf = rig.agent_toml.with_name("leaf.conf")
            pings = f'ping_interval: "{ping_s}s"'
            conf.write_text(re.sub('ping_interval: ".*"', pings, conf.read_text()))
        self._stack.push_async_callback(rig.stop)
        await rig.start()
        return rig, relay

    async def connect(self, url: str) -> Client:
        """Connect a plain NATS client to a vehicle, as a program; it is closed with the test."""
        return await self._connect({"servers": url})

    async def leaf_client(self, rig: DeviceRig) -> Client:
        """Connect a plain NATS client to a vehicle, as its agent; it is closed with the test."""
        return await self._connect(rig.options())

    async def hub_client(self, user: str = "control") -> Client:
        """Connect a plain NATS client to the hub; it is closed with the test."""
        return await self._connect(self.hub.options(user))

    async def _connect(self, options: dict[str, Any]) -> Client:
        client = PatientClient()
        await client.connect(**options)
        self._stack.push_async_callback(client.close)
        return client

    async def report(self) -> dict[str, Any]:
        """Ask the control plane for what `backhaul-hub devices --json` shows."""
        async with self.hub.connection() as client:
            answer = await client.request("hub.devices", b"")
        report: dict[str, Any] = json.loads(answer.data)
        return report

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], *, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Ask the control plane until its report fits; fail with the last one, and its log's end."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_s
        report: dict[str, Any] = {}
        trouble = ""
        while loop.time() < end_s:
            try:
                report = await self.report()
            except nats.errors.Error as error:
                trouble = repr(error)
                await asyncio.sleep(0.1)
                continue
            trouble = ""
            if condition(report):
                return report
            await asyncio.sleep(0.05)
        log = self.hub.control.logged().decode()[-4000:]
        pytest.fail(
            f"never came true ({trouble or 'the hub answers'}); its last report: "
            f"{json.dumps(report)}\n{log}"
        )


async def vouched(rig: DeviceRig) -> None:
    """Wait until somebody has said whether the ledger's epoch goes on, after a start of the agent.

    Who publishes before waits two seconds for the hub's word, and then has a new epoch.
    """
    async with asyncio.timeout(DEADLINE_S), rig.connection() as client:
        while True:
            status = json.loads((await client.request("agent.status", b"")).data)
            if status["ledger"]["epoch"] != "waiting":
                return
            await asyncio.sleep(0.05)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A running hub without vehicles."""
    async with AsyncExitStack() as stack:
        yield await World(tmp_path, stack).start()


def lane(report: dict[str, Any], device: str = "VID-001", name: str = "bulk") -> dict[str, Any]:
    """Return what a report says of a lane (empty, where the hub has not heard of it)."""
    for each in report["devices"]:
        if each["device"] == device:
            found: dict[str, Any] = each["lanes"].get(name, {})
            return found
    return {}
