"""A cloned disk: two machines with one identity, whatever the order in which they connect.

Both go on in the epoch of the image, each with readings of its own. All that either of them kept reaches
the hub once. Real hub, real leaf, real agent; the machines take turns in one place.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect

from .conftest import World, vouched
from .test_epochs import copy
from .test_health import until_shown
from .test_put_back import older, parts
from .test_uplink import arrive, keep

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay

pytestmark = [pytest.mark.nats]
FRAME = 250


class Machines:
    """Disks that take turns in one vehicle: each is saved where another is put in."""

    def __init__(self, world: World, rig: DeviceRig, relay: Relay) -> None:
        self.kept = 0
        self.world, self.rig, self.relay = world, rig, relay

    async def save(self, name: str) -> None:
        """Stop the machine, and keep its disk."""
        await self.rig.stop()
        for part in parts(self.rig):
            await copy(part, older(part, name))

    async def put_in(self, name: str) -> None:
        for part in parts(self.rig):
            await copy(older(part, name), part)

    async def keep(self, frames: int) -> None:
        async with connect(self.rig.url) as agent:
            await keep(agent, self.kept + 1, frames * FRAME)
        self.kept += frames * FRAME

    async def settled(self) -> None:
        """Wait until nothing that this machine has kept waits for the hub any more."""
        status: dict[str, Any] = {}
        async with self.rig.connection() as client:
            for _ in range(2400):
                status = json.loads((await client.request("agent.status", b"")).data)
                bulk = status["lanes"]["bulk"]
                ledger = status["ledger"]
                # What was moved stands in an epoch of its own, which is a former one from the start.
                some = bulk["last_seq"] or ledger["compared_epochs"]
                whole = some and bulk["watermark"] == bulk["last_seq"]
                if whole and not ledger["former_epochs_owed"] and not ledger["staged_points"]:
                    return
                await asyncio.sleep(0.05)
        pytest.fail(f"still owed: {status}")

    async def cut_keep_stop(self, frames: int) -> None:
        """Keep what goes on in the epoch as it is: the hub has vouched for it before the link is cut."""
        await vouched(self.rig)
        await self.relay.cut()
        await self.keep(frames)
        await self.rig.stop()
        await self.relay.heal()


@pytest.fixture
async def machines(world: World) -> Machines:
    """A machine, "one", that runs, and the image of its disk, "two"; the hub holds all that is on it."""
    rig, relay = await world.vehicle()
    it = Machines(world, rig, relay)
    await it.keep(3)
    await it.settled()
    for part in parts(rig):
        await copy(part, older(part, "two"))  # of a machine that runs on, idle
    return it


@pytest.mark.parametrize(("first", "second"), [(4, 4), (2, 5), (5, 2)])
async def test_what_two_machines_kept_in_one_epoch_arrives_once(
    machines: Machines, first: int, second: int
) -> None:
    await machines.cut_keep_stop(first)
    await machines.save("one")
    await machines.put_in("two")
    await machines.rig.start()
    await machines.cut_keep_stop(second)
    await machines.save("two")
    for name in ("one", "two", "one"):
        await machines.put_in(name)
        await machines.rig.start()
        await machines.keep(1)
        await machines.settled()
        await machines.save(name)
    await machines.put_in("two")
    await machines.rig.start()
    await arrive(machines.world, machines.kept)
    # One machine-id, so that only what they sent gives them away.
    found = await until_shown(machines.world, "two-machines")
    assert "two machines use the identity of VID-001" in found["detail"]
    assert "both wrote in lane" in found["detail"]
    assert "backhaul-hub enrol" in found["hint"]
