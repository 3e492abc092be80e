"""A hub of three servers that loses one, then another, with one alone it can store nothing; or whose files are damaged.

That it loses one is in `faults.py`: there `server` is one of the three; that its disk is full, in `faults_disk.py`.
NOT modelled: a server whose store goes back in time, damage to two servers at once, a network that is cut one way.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.faults_disk import STORE
from tests.chaos.kinds import CLUSTER, kind
from tests.chaos.schedule import Habit
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import RigError
from tests.support.rig.repair import repaired
from tests.support.store_damage import all_blocks, cut_short, flip_a_bit

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import Part

_REPAIR_S = 300.0
"""For how long an operator tries: another server may be about to catch up."""
_AGAIN_S = 1.0


@kind("lose-two", Habit(4, 12.0, "server", at_hub=True, needs=CLUSTER))
async def _lose_two(world: World, fault: Fault) -> None:
    """Kill or freeze one server, then a second while the first is away; they come back in any order."""
    random = Random(str(fault))
    lost = random.sample(world.servers, 2)
    async with AsyncExitStack() as stack:
        for part in sorted(lost, key=lambda part: part.name):
            await stack.enter_async_context(world.turn_of(part))
        gone: list[tuple[Part, int]] = []
        try:
            for part in lost:
                gone.append((part, await _lose(world, part, kill=random.random() < 1 / 2)))
                await asyncio.sleep(fault.length_s / 2)
        finally:
            for part, frozen_pid in random.sample(gone, len(gone)):
                if frozen_pid:
                    os.kill(frozen_pid, signal.SIGCONT)
                else:
                    await part.start()


async def _lose(world: World, part: Part, *, kill: bool) -> int:
    """Kill or freeze a server; return the pid of one that stands still, else 0."""
    if kill:
        await world.kill(part)
        return 0
    os.kill(part.pid, signal.SIGSTOP)
    return part.pid


@kind("damage-store", Habit(2, 4.0, "server", at_hub=True, needs=CLUSTER))
async def _damage_store(world: World, fault: Fault) -> None:
    """Kill one server, cut its files short or turn bits over; in the end it is repaired by the real command."""
    hub = world.hub
    assert isinstance(hub, ClusterRig)
    random = Random(str(fault))
    name = random.choice([*hub.servers])
    server = hub.servers[name]
    async with world.turn(STORE), world.turn_of(server):
        await world.kill(server)
        files = [each for each in all_blocks(hub.store(name)) if each.stat().st_size]
        for block in random.sample(files, min(len(files), random.randint(0, 3))):
            await asyncio.to_thread(random.choice((cut_short, flip_a_bit)), block)
        await server.start()
        await asyncio.sleep(fault.length_s)
        await _repaired(hub, name)


async def _repaired(hub: ClusterRig, name: str) -> None:
    """Repair a server, as soon as the others are whole. Raises: RigError: they are not for minutes."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _REPAIR_S
    while True:
        try:
            await repaired(hub, name)
        except RigError:
            if clock.time() > deadline_s:
                raise
        else:
            return
        await asyncio.sleep(_AGAIN_S)


@kind("lose-store", Habit(2, 4.0, "server", at_hub=True, needs=CLUSTER))
async def _lose_store(world: World, fault: Fault) -> None:
    """Kill one server, which may lead streams, lose its whole store, and have it copy all anew."""
    hub = world.hub
    assert isinstance(hub, ClusterRig)
    name = Random(str(fault)).choice(NAMES)
    server = hub.servers[name]
    async with world.turn(STORE), world.turn_of(server):
        await world.kill(server)
        await asyncio.to_thread(shutil.rmtree, hub.store(name) / "jetstream", ignore_errors=True)
        await asyncio.sleep(fault.length_s)
        await hub.start_server(name)
        await hub.copied(name)


@kind("part-servers", Habit(4, 25.0, "server", at_hub=True, needs=CLUSTER))
async def _part_servers(world: World, fault: Fault) -> None:
    """Part one server from the other two; a control plane sees all of them, or one side."""
    hub, network = world.hub, world.network
    assert isinstance(hub, ClusterRig)
    assert network is not None
    random = Random(str(fault))
    alone = random.choice(NAMES)
    sides = [NAMES, (alone,), tuple(name for name in NAMES if name != alone)]
    async with world.turn("network of the servers"):
        for machine in network.machines:
            await network.control_sees(*random.choice(sides), machine=machine)
        await network.part(alone)
        try:
            await asyncio.sleep(fault.length_s)
        finally:
            await network.heal(alone)
            for machine in network.machines:
                await network.control_sees(*NAMES, machine=machine)
