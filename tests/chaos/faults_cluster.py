"""A hub of three servers that loses one, then another: with one alone it can store nothing.

That it loses one is in `faults.py`: there `server` is one of the three. NOT modelled: a network that
parts servers from one another, and a server whose store goes back in time or whose disk is full.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.kinds import CLUSTER, kind
from tests.chaos.schedule import Habit

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
