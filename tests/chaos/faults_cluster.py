"""A hub of three servers that loses one, then another, with one alone it can store nothing; or whose files are damaged.

That it loses one is in `faults.py`: there `server` is one of the three. NOT modelled: a network that parts servers
from one another, a server whose store goes back in time or whose disk is full, and damage to two servers at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.kinds import CLUSTER, kind
from tests.chaos.schedule import Habit
from tests.support.rig.cluster import ClusterRig
from tests.support.store_damage import all_blocks, cut_short, flip_a_bit

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import Part


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
    """Kill one server, cut its files short or turn bits over; in the end it loses all, and copies it anew."""
    hub = world.hub
    assert isinstance(hub, ClusterRig)
    random = Random(str(fault))
    name = random.choice([*hub.servers])
    server, store = hub.servers[name], hub.directory / "servers" / name / "jetstream"
    async with world.turn_of(server):
        await world.kill(server)
        files = [each for each in all_blocks(store) if each.stat().st_size]
        for block in random.sample(files, min(len(files), random.randint(0, 3))):
            await asyncio.to_thread(random.choice((cut_short, flip_a_bit)), block)
        await server.start()
        await asyncio.sleep(fault.length_s)
        # As docs/cluster.md has an operator do.
        await world.kill(server)
        await asyncio.to_thread(shutil.rmtree, store)
        await server.start()
        await hub.copied(name)
