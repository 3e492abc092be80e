"""A hub of three servers loses the one that leads PUSH, then the one that the vehicle is connected to.

Modelled: each is killed and started again while all lanes are pushed and IN sleeps. Not covered: two servers
away at once (test_cluster.py has that, sourced).
"""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from nats.errors import Error as NatsError

from tests.integration.doors import Door
from tests.integration.readings import at_the_hub
from tests.integration.trickles import (
    BOTH,
    Trickle,
    all_confirmed,
    only_pushes,
    pushed,
    trickling,
    until,
)
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import DeviceRig
from tests.support.rig.relay import Relay

from .conftest import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.nats]
PUSH = "PUSH"
STATE = "fleet.prod.veh.VID-001.state.battery.soc"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield await World(tmp_path, stack, ClusterRig).start()


async def test_servers_die_and_come_back_while_lanes_are_pushed(
    world: World, tmp_path: Path
) -> None:
    hub = world.hub
    assert isinstance(hub, ClusterRig)
    async with AsyncExitStack() as stack:
        relays = {name: Relay("127.0.0.1", hub.leaf_ports[name]) for name in NAMES}
        for relay in relays.values():
            await stack.enter_async_context(relay)
        links = {hub.leaf_ports[name]: relay.port for name, relay in relays.items()}
        rig = await DeviceRig.add(hub, "VID-001", tmp_path / "VID-001", links=links)
        stack.push_async_callback(rig.stop)
        await rig.start()
        door = await Door(world, rig).open()
        trickle = Trickle()
        async with trickling(rig, trickle) as agent:
            await pushed(agent, BOTH)
            await only_pushes(world)
            assert (await hub.info(PUSH))["config"]["num_replicas"] == len(NAMES)
            for who in ("leads PUSH", "has the link"):
                linked = next(name for name, relay in relays.items() if relay.connections)
                victim = await hub.leader(PUSH) if who == "leads PUSH" else linked
                await hub.servers[victim].stop(signal.SIGKILL)
                await trickle.more(10)
                client = await hub.connect()
                await door.command(client)
                await client.close()
                await hub.start_server(victim)
                await until(partial(arrived, world, trickle.count), "what was pushed meanwhile")
            await pushed(agent, BOTH)
            await only_pushes(world)
        await all_confirmed(world, rig, trickle.count)
        door.each_once()
        await until(partial(in_the_twin, world, trickle.count / 8), "the newest in the twin")


async def arrived(world: World, reading: int) -> bool:
    with suppress(NatsError):  # while UP has no leader
        return reading in await at_the_hub(world)
    return False


async def in_the_twin(world: World, value: float) -> bool:
    client = await world.hub_client()
    found = await client.jetstream().get_last_msg("TWIN_STATE", STATE)
    return bool(json.loads(found.data or b"{}")["data"]["value"] == value)
