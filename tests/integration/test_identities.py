"""A disk image that was copied: two real vehicles with one identity, and what the hub says of them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from tests.integration.conditions import until_shown, world
from tests.integration.readings import arrive, confirmed, keep
from tests.support.rig.parts import DeviceRig
from tests.support.rig.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .conftest import World

__all__ = ["world"]

pytestmark = [pytest.mark.nats]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def cloned(world: World, rig: DeviceRig, stack: AsyncExitStack) -> DeviceRig:
    """Copy all that a vehicle, which is off, has on its disk; only where it is differs."""
    directory = world.directory / f"{rig.device}-copy"
    there = rig.agent_toml.parent
    shutil.copytree(there, directory)
    clone = DeviceRig.of(rig.hub, rig.device, directory)
    for name in ("agent.toml", "leaf.conf"):
        text = (there / name).read_text().replace(str(there), str(directory))
        (directory / name).write_text(text.replace(str(rig.client_port), str(clone.client_port)))
    stack.push_async_callback(clone.stop)
    return clone


def machines(report: dict[str, Any]) -> list[str]:
    """Return the machines that the hub knows of, the newest last."""
    return [each["machine"] for each in report["devices"][0]["agent"]["machines"]]


async def test_two_that_alternate_are_told_with_both_machines_and_what_to_do(
    world: World, stack: AsyncExitStack
) -> None:
    rig, _ = await world.vehicle("VID-007")
    report = await world.until(lambda report: len(machines(report)) == 1)
    (device,) = report["devices"]
    (one,) = device["agent"]["machines"]
    assert (one["address"], one["version"]) == ("127.0.0.1", device["agent"]["version"])
    assert device["link"]["address"] == "127.0.0.1"
    await rig.stop()
    clone = await cloned(world, rig, stack)
    await clone.start()
    report = await world.until(lambda report: machines(report)[-1] != one["machine"])
    other = report["devices"][0]["agent"]["machines"][-1]
    await clone.stop()
    await rig.start()
    found = await until_shown(world, "two-machines", detail=one["machine"])
    assert (found["device"], found["severity"]) == ("VID-007", "error")
    assert other["machine"] in found["detail"]
    assert "two machines use the identity of VID-007" in found["detail"]
    assert found["detail"].count("at 127.0.0.1") == 2
    assert "backhaul-hub enrol" in found["hint"]
    # It is known of after a restart of the control plane, too.
    await world.hub.control.stop()
    await world.hub.start_control()
    await until_shown(world, "two-machines", detail=other["machine"])
    assert set(machines(await world.report())) == {one["machine"], other["machine"]}


async def test_two_at_once_are_told(world: World, stack: AsyncExitStack) -> None:
    rig, _ = await world.vehicle("VID-007")
    await world.until(lambda report: len(machines(report)) == 1)
    await rig.stop()
    clone = await cloned(world, rig, stack)
    await rig.start()
    await clone.start()
    found = await until_shown(world, "two-machines")
    report = await world.until(lambda report: len(set(machines(report))) == 2)
    for machine in set(machines(report)):
        assert machine in found["detail"]


async def test_two_that_are_online_at_once_take_turns(world: World, stack: AsyncExitStack) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay, "VID-007", link_mode="on-demand", mode="always")
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
    await confirmed(world, rig, 1)
    await rig.stop()
    clone = await cloned(world, rig, stack)
    await asyncio.gather(rig.start(), clone.start())
    async with connect(rig.url) as one, connect(clone.url) as other:
        await asyncio.gather(keep(one, 251, 500), keep(other, 751, 500))
        await until_shown(world, "two-machines")
        await arrive(world, 1250)
        # Either of them is told, stays away for a while, and both get through from then on.
        told = await until_shown(world, "identity-shared")
        assert (told["device"], told["detail"]) == ("VID-007", "")
        await asyncio.gather(keep(one, 1251, 500), keep(other, 1751, 500))
        await arrive(world, 2250)
        found = await until_shown(world, "two-machines")
    report = await world.report()
    for machine in set(machines(report)):
        assert machine in found["detail"]
    assert len(set(machines(report))) == 2
