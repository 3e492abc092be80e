"""Clocks that jump: a vehicle's, or the hub's, finds its wall clock off, and later right again.

The hub's is never off by less than its control plane takes for a step: by that it is allowed to be wrong.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.kinds import kind
from tests.chaos.schedule import HUB, Habit

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_DAY_S = 86_400.0


async def _jump(least_s: float, most_s: float, world: World, fault: Fault) -> None:
    """Set the wall clock forward or back, and right again."""
    random = Random(str(fault))
    offset_s = random.choice((-1, 1)) * random.uniform(least_s, most_s)
    wall = world.wall if fault.target == HUB else world.vehicles[fault.target].wall
    assert wall is not None
    async with world.turn(f"{fault.target} clock"):
        wall.jump(offset_s)
        try:
            await asyncio.sleep(fault.length_s)
        finally:
            wall.jump(0.0)


for _name, _least_s, _most_s in (
    ("jump-seconds", 2.0, 59.0),
    ("jump-days", _DAY_S, 30 * _DAY_S),
    ("jump-years", 365 * _DAY_S, 50 * 365 * _DAY_S),
):
    kind(_name, Habit(1, 8.0, "clock"))(partial(_jump, _least_s, _most_s))

for _name, _least_s, _most_s in (
    ("hub-jump-seconds", 11.0, 59.0),
    ("hub-jump-days", _DAY_S, 30 * _DAY_S),
):
    kind(_name, Habit(1, 8.0, "clock", at_hub=True))(partial(_jump, _least_s, _most_s))
