"""The control plane at a real server, step by step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.cli import _act
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError
from backhaul_hub.links.leaf_connections import Leafs
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import SystemClock
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
async def test_a_command_that_comes_while_the_control_plane_starts_is_carried_out_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers yet, and hub.db is in use: the command waits, and writes nothing beside."""
    monkeypatch.setattr(_act, "_PATIENCE_S", 600.0)
    rig = HubRig(tmp_path / "hub")
    create_hub(rig.directory, local_layout(rig.client_port, rig.leaf_port))
    start, asking = Leafs.start, list[asyncio.Task[dict[str, Any]]]()
    refused = asyncio.Event()

    async def note_held(*_: object) -> None:
        refused.set()
        await asyncio.sleep(0.01)

    async def start_late(leafs: Leafs) -> None:
        monkeypatch.setattr(_act, "_look_again", note_held)
        question = {"device": VID.id}
        asking.append(asyncio.create_task(_act.done(rig.directory, "add-device", question)))
        waiting = asyncio.create_task(refused.wait())
        await asyncio.wait([*asking, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done(), "it has not waited"
        await start(leafs)

    monkeypatch.setattr(Leafs, "start", start_late)
    plane = ControlPlane(rig.directory, load(rig.directory), SystemClock())
    await rig.server.start()
    try:
        await rig.server.wait_listening(rig.client_port)
        running = asyncio.create_task(plane.run())
        await until(lambda: bool(asking) or running.done())
        said = await asking[0]
        assert (said["device"], said["added"], said["problem"]) == (VID.id, True, "")
        assert VID.id in plane.fleet.devices.known()
        await until(lambda: plane.reading.readers != [] or running.done())
        begun = await _act.done(rig.directory, "rotate", {"device": VID.id})
        assert begun["begun"]
        assert VID.id in plane.gate.rotations.rotations
        plane.stop()
        await running
    finally:
        await rig.server.stop()
