"""The hub's registry lost: hub.db is gone, and rebuilt from what is left, as docs/backup.md says.

What no trace says is not brought back, and the checker excuses that alone: `Loss`. NOT modelled: that the
directory `devices/` or the servers' accounts are lost as well (`tests/integration/test_lost_registry.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from backhaul_hub.errors import HubError
from tests.chaos.kinds import ALONE, kind
from tests.chaos.schedule import Habit
from tests.support.rig.parts import RigError, program

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_REBUILT_S = 120.0
"""For how long an operator tries: the server may just be starting, or its disk be full."""
_PAUSE_S = 1.0


@kind("lost-hub-db", Habit(0.8, 3.0, "control", at_hub=True, needs=ALONE))
async def _lose_registry(world: World, fault: Fault) -> None:
    """Kill the control plane, remove hub.db, have it refused, rebuilt, and started again."""
    hub = world.hub
    async with world.turn_of(hub.control), world.turn(REGISTRY):
        await world.kill(hub.control)
        since_ns = world.now_ns()
        for path in hub.directory.glob("hub.db*"):
            path.unlink()
        await asyncio.sleep(fault.length_s)
        # Nobody kills the server meanwhile: an operator sees to it that it runs.
        async with world.turn_of(hub.server):
            await _rebuilt(world)
        world.lost_registries.append((since_ns, world.now_ns()))
        await hub.control.start()


REGISTRY = "hub.db"
"""The turn of whoever needs it to be there."""


async def _rebuilt(world: World) -> None:
    """Rebuild hub.db, once the server answers.

    Raises:
        HubError, ClickException: it cannot be rebuilt for longer than anything takes.
    """
    hub, clock = world.hub, asyncio.get_running_loop()
    deadline_s = clock.time() + _REBUILT_S
    command = [program("backhaul-hub"), "restore", "--from-streams", "--dir", str(hub.directory)]
    while True:
        try:
            await hub.run(command)
        except (HubError, click.ClickException, RigError, OSError):
            if clock.time() > deadline_s:
                raise
        else:
            return
        await asyncio.sleep(_PAUSE_S)
