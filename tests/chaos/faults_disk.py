"""Full disks: under a ledger, under a leaf's store, under the hub's server and its hub.db, under one server of three.

A nats-server whose disk was full writes no stream that failed until it is started again. For a leaf
the vehicle does that (`tend`, as backhaul-leaf-check.timer has it); at the hub an operator has to.

NOT here: a server that is started while its disk is full. It takes what is free then as its limit for as
long as it runs, so these faults and those that kill the server are of one part, and never overlap.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_agent.errors import AgentError
from backhaul_agent.leaf.store_health import needs_restart
from tests.chaos.faults_ledger import note_set_aside
from tests.chaos.kinds import ALONE, CLUSTER, kind
from tests.chaos.schedule import Habit
from tests.support.rig.cluster import NAMES, ClusterRig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.disks import Disk
    from tests.chaos.schedule import Fault
    from tests.chaos.world import Vehicle, World

FULL_SERVER = "full-server"
STORE = "store of a server of three"
"""The turn of whatever takes one away: two hold an acknowledged message for certain, until the third has copied it."""
_SQUEEZE_S = 0.2
_TEND_S = 2.0
STORES = {"full-ledger": "ledger", "full-leaf": "leaf", "full-hub": "hub"}
"""By kind, the store that must be on a disk of its own; `full-server` needs that of the server that it hits."""


def needed(faults: Iterable[Fault]) -> set[tuple[str, str]]:
    """Return what must be on a disk of its own for these faults: targets and stores.

    The leaf's holds all that a vehicle has, so that the ledger is set apart where that one is.
    """
    found = {
        (fault.target, _store(fault))
        for fault in faults
        if fault.kind in STORES or fault.kind == FULL_SERVER
    }
    return found | {(target, "ledger") for target, store in found if store == "leaf"}


@kind("full-ledger", Habit(1.5, 8.0, "disk of ledger"))
async def _full_ledger(world: World, fault: Fault) -> None:
    if disk := _disk(world, fault):
        if fault.target not in world.refusing:
            world.filled.add(fault.target)
        async with world.turn(f"{fault.target} disk of ledger"):
            await _full(disk, fault)
            note_set_aside(world)


@kind("full-leaf", Habit(1, 8.0, "leaf"))
async def _full_leaf(world: World, fault: Fault) -> None:
    if disk := _disk(world, fault):
        async with world.turn_of(world.vehicles[fault.target].rig.leaf):
            await _full(disk, fault)


@kind("full-hub", Habit(0.7, 6.0, "server", at_hub=True, needs=ALONE))
async def _full_hub(world: World, fault: Fault) -> None:
    """Fill the hub's disk, drain it, and start its server again."""
    if disk := _disk(world, fault):
        server = world.hub.server
        async with world.turn_of(server):
            await _full(disk, fault)
            if not world.ended_by_itself(server):
                await server.stop()
            await server.start()


@kind(FULL_SERVER, Habit(1.5, 6.0, "server", at_hub=True, needs=CLUSTER))
async def _full_server(world: World, fault: Fault) -> None:
    """Fill the disk of one server of three, drain it, and start that server again, as `server-off` has an operator do."""
    hub = world.hub
    assert isinstance(hub, ClusterRig)
    if disk := _disk(world, fault):
        name = _store(fault)
        server = hub.servers[name]
        async with world.turn(STORE), world.turn_of(server):
            await _full(disk, fault)
            if not world.ended_by_itself(server):
                await server.stop()
            await hub.start_server(name)
            await hub.copied(name)


def _store(fault: Fault) -> str:
    """Return the store that a fault fills: of a cluster's server its name."""
    return STORES.get(fault.kind) or Random(str(fault)).choice(NAMES)


def _disk(world: World, fault: Fault) -> Disk | None:
    """Return the disk that a fault is about; None, and counted, where there may be none here."""
    disk = world.disks.get((fault.target, _store(fault)))
    if disk is None:
        world.passed_over[fault.kind] += 1
    return disk


async def _full(disk: Disk, fault: Fault) -> None:
    """Fill a disk for a while; in half of all cases whatever is given up on it is taken as well."""
    greedy = Random(str(fault)).random() < 1 / 2
    end_s = asyncio.get_running_loop().time() + fault.length_s
    try:
        await disk.fill()
        while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, _SQUEEZE_S))
            if greedy:
                await disk.fill()
    finally:
        await disk.drain()


async def tend(world: World) -> None:
    """Start each leaf again that this heals, as its vehicle does; until cancelled."""
    while world.disks:
        await asyncio.sleep(_TEND_S)
        for vehicle in world.vehicles.values():
            store = vehicle.rig.agent_toml.parent
            try:
                heals, _ = needs_restart(await _failed(vehicle), store=store)
            except (AgentError, NatsError, OSError):
                continue  # not to be asked now
            if heals:
                async with world.turn_of(vehicle.rig.leaf):
                    await vehicle.rig.leaf.stop()
                    await vehicle.rig.leaf.start()


async def _failed(vehicle: Vehicle) -> dict[str, str]:
    async with connect(vehicle.rig.url, wait_s=_TEND_S) as agent:
        failed: dict[str, str] = (await agent.status())["leaf"]["failed_streams"]
    return failed
