"""What can go wrong with Spark's job that writes the history: killed, or standing still.

Seldom: until its JVM is up again a soak has many other faults.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.kinds import HISTORY, kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_WAIT_S = 60.0
_LOOK_S = 0.05


@kind("kill-spark", Habit(0.15, 3.0, "spark", at_hub=True, needs=HISTORY))
async def _kill_spark(world: World, fault: Fault) -> None:
    """Kill the job, its Python driver or its JVM, a while after it has done something."""
    assert world.ingest is not None
    job = world.ingest.job
    async with world.turn("spark"):
        await world.ingest.goes_on(_WAIT_S)
        await asyncio.sleep(fault.length_s)
        what = Random(str(fault)).choice(("job", "driver", "jvm"))
        while not job.kill(what, 0):  # noqa: ASYNC110 - processes come and go
            await asyncio.sleep(_LOOK_S)
        world.killed[job.name] += 1


@kind("freeze-spark", Habit(0.1, 20.0, "spark", at_hub=True, needs=HISTORY))
async def _freeze_spark(world: World, fault: Fault) -> None:
    """Have all processes of the job stand still for a while, workers too."""
    assert world.ingest is not None
    async with world.turn("spark"):
        await world.ingest.goes_on(_WAIT_S)
        with world.ingest.job.frozen():
            await asyncio.sleep(fault.length_s)
