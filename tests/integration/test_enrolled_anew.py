"""A clone that is enrolled anew goes on with what it holds: under its new name, and nothing under both."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from backhaul_agent.client import connect
from tests.integration.epochs import copy
from tests.integration.older_copies import older, parts
from tests.integration.readings import arrive, confirmed, frames_at_the_hub, keep
from tests.support.rig.parts import DeviceRig, RigError, program, run_to_end
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World, vouched

pytestmark = [pytest.mark.nats]


async def by_device(world: World) -> dict[str, Counter[int]]:
    """Return how often each point stands at the hub under each device, a repeat counted once."""
    found: dict[str, Counter[int]] = {}
    for (device, *_), times in dict(await frames_at_the_hub(world)).items():
        found.setdefault(device, Counter()).update(times)
    return found


async def ends(rig: DeviceRig) -> None:
    """Start a vehicle whose agent does not come to run. Raises: RigError: with what it said."""
    await rig.start()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            rig.agent.assert_alive()
            await asyncio.sleep(0.05)


async def test_what_a_clone_holds_goes_on_under_its_new_name(world: World) -> None:
    rig, relay = await world.vehicle("VID-007")
    async with connect(rig.url) as agent:
        await keep(agent, 1, 750)
    await confirmed(world, rig, 3)
    await rig.stop()
    for part in parts(rig):
        await copy(part, older(part, "image"))
    # The clone: it goes on in the epoch of the image, and the hub never hears of it under this name.
    await rig.start()
    await vouched(rig)
    await relay.cut()
    async with connect(rig.url) as agent:
        await keep(agent, 1251, 500)
    await rig.stop()
    for part in parts(rig):
        await copy(part, older(part, "clone"))
        await copy(older(part, "image"), part)
    # The vehicle itself writes under the same seqs.
    await relay.heal()
    await rig.start()
    async with connect(rig.url) as agent:
        await keep(agent, 751, 500)
    await arrive(world, 1250)
    # Enrolled anew, in the place of the clone's disk.
    async with Relay("127.0.0.1", world.hub.leaf_port) as link:
        anew = await DeviceRig.add(
            world.hub, "VID-008", world.directory / "VID-008", link_port=link.port
        )
        for there, here in zip(parts(rig), parts(anew), strict=True):
            await copy(older(there, "clone"), here)
        try:
            with pytest.raises(RigError, match=r"(?s)belongs to device 'VID-007'.*adopt-ledger"):
                await ends(anew)
            adopt = [program("backhaul-agent"), "adopt-ledger", "--config", str(anew.agent_toml)]
            with pytest.raises(RigError, match="a leaf server runs"):
                await run_to_end(adopt)
            await anew.stop()
            said = await run_to_end(adopt)
            assert "was VID-007's and is VID-008's now: 2 messages" in said
            assert "belongs to VID-008 already" in await run_to_end(adopt)
            await anew.start()
            async with connect(anew.url) as agent:
                await keep(agent, 1751, 250)
            await arrive(world, 2000)
        finally:
            await anew.stop()
    found = await by_device(world)
    assert found["VID-007"] == Counter(range(1, 1251))
    assert found["VID-008"] == Counter(range(1251, 2001))
