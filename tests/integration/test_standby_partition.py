"""Two machines with a control plane, on either side of a cut between one server and the other two.

Real servers whose routes go through relays, a vehicle on either side, under load. First the machine that leads is on
the side with one server, then on the side with two. NOT covered: a cut that goes one way alone.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import DEVICES, running
from tests.integration.doors import Door
from tests.integration.partitions import ALONE, OTHER, connected, laid, watermark_moves
from tests.support.rig.cluster import NAMES
from tests.support.rig.standby import Machines
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def test_the_side_with_two_servers_has_the_one_leader(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        network = laid(stack)
        sides = dict(zip(DEVICES, (ALONE, OTHER), strict=True))
        cluster = await stack.enter_async_context(
            running(tmp_path, before_start=network.between, servers=sides)
        )
        hub, (apart, _) = cluster.hub, cluster.vehicles
        await hub.control.stop()
        machines = Machines(hub)
        stack.push_async_callback(machines.stop)
        toml = machines.places["b"] / "hub.toml"
        await machines.start(lambda: network.of_control(hub, toml, "b"))
        await network.control_sees(ALONE, machine="a")
        await network.control_sees(*(name for name in NAMES if name != ALONE), machine="b")
        door = await Door(cluster.world, apart).open()
        operator = await connected(hub, OTHER)
        stack.push_async_callback(operator.close)
        assert await machines.ready(operator) == "a"
        async with cluster.load():
            await door.command(operator)
            # The machine that leads is alone: the other one takes over, and `a` can store nothing.
            await network.part(ALONE)
            await machines.led_by(operator, "b")
            commanding = asyncio.create_task(door.command(operator))
            await watermark_moves(cluster, DEVICES[1])
            await cluster.more(1)
            await network.heal(ALONE)
            await commanding
            assert await machines.ready(operator) == "b", "the former leader follows"
            # The machine that follows is alone: it hears nobody, and takes nothing over.
            term = (await machines.status(operator))["term"]
            await network.part(ALONE)
            await watermark_moves(cluster, DEVICES[1])
            await cluster.more(1)
            await network.heal(ALONE)
            assert await machines.ready(operator) == "b"
            assert (await machines.status(operator))["term"] == term
        await cluster.is_whole()
        door.each_once()
        await until(lambda: machines.tables("a") == machines.tables("b"), "both hold the same rows")
