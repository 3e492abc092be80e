"""The control plane at a real server, step by step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from backhaul_hub.cli._tell import tell_hub

from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.device import Device
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import HubError
from backhaul_hub.links.leaf_connections import Leafs
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import begin_rotation, create_device
from tests.support.hub_layout import local_layout
from tests.support.rig.parts import HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats

VID = Device("VID-001", "ab12", "", 0)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the one server that there is, also where it stands still for some seconds."""
    monkeypatch.setattr("backhaul_hub.nats.system_requests._WAIT_S", 60.0)
    monkeypatch.setattr("backhaul_hub.nats.connection._CONNECT_TIMEOUT_S", 60.0)


@pytest.mark.usefixtures("patience")
async def test_it_ends_where_one_task_fails_and_another_overhears_that_it_is_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, overheard = asyncio.Event(), list[str]()

    async def found(_: SingleInstance) -> None:
        await fails.wait()
        raise HubError("another control plane of this hub is running")

    async def goes_on(*_: object) -> None:
        """Lose a cancellation, as nats-py does where it comes at the wrong moment."""
        fails.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            overheard.append("once")
        await asyncio.Event().wait()

    monkeypatch.setattr(SingleInstance, "watch", found)
    monkeypatch.setattr(metrics_server, "serve", goes_on)
    rig = HubRig(tmp_path / "hub")
    create_hub(rig.directory, local_layout(rig.client_port, rig.leaf_port))
    plane = ControlPlane(rig.directory, load(rig.directory), SystemClock())
    await rig.server.start()
    try:
        await rig.server.wait_listening(rig.client_port)
        running = asyncio.create_task(plane.run())
        _, pending = await asyncio.wait([running], timeout=120)
        assert overheard == ["once"]
        assert not pending
        with pytest.raises(ExceptionGroup) as raised:
            await running
        assert raised.group_contains(HubError, match="another control plane")
    finally:
        await rig.server.stop()


@pytest.mark.usefixtures("patience")
async def test_what_a_command_writes_before_anybody_can_be_told_is_learnt_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds that no control plane runs, and counts on the next one to read hub.db."""
    rig = HubRig(tmp_path / "hub")
    create_hub(rig.directory, local_layout(rig.client_port, rig.leaf_port))
    config, clock = load(rig.directory), SystemClock()
    start, told = Leafs.start, list[str | None]()

    async def start_late(leafs: Leafs) -> None:
        await create_device(rig.directory, config, clock, VID.id, DeviceSettings())
        await begin_rotation(rig.directory, clock, VID.id)
        told.append(await tell_hub(rig.directory, config))
        await start(leafs)

    monkeypatch.setattr(Leafs, "start", start_late)
    plane = ControlPlane(rig.directory, config, clock)
    await rig.server.start()
    try:
        await rig.server.wait_listening(rig.client_port)
        running = asyncio.create_task(plane.run())
        await until(lambda: plane.reading.readers != [] or running.done())
        assert told == [None]
        assert VID.id in plane.fleet.devices.known()
        assert VID.id in plane.gate.rotations.rotations
        plane.stop()
        await running
    finally:
        await rig.server.stop()
