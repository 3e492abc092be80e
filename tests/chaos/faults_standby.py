"""Two control planes of which one leads: the leader is killed, stands still, or hands over, and the other takes over.

Faults of `control` in `faults.py` hit either of them, by chance. NOT modelled: a machine that is lost with its hub.db,
and a journal that is lost or goes back in time, after which an operator has to choose (docs/cluster.md).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from backhaul_hub.questions import subject
from tests.chaos.kinds import STANDBY, kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import Part
    from tests.support.rig.standby import Machines

    Tables = Mapping[str, Sequence[tuple[Any, ...]]]

_ASK_S = 5.0
_ALIKE_S = 120.0
_LEADS_S = 20.0
_LOOK_S = 0.5


@kind("kill-leader", Habit(3, 12.0, "control", at_hub=True, needs=STANDBY))
async def _kill_leader(world: World, fault: Fault) -> None:
    """Kill the control plane that leads; it comes back when another one may lead already."""
    if part := await _leader(world, fault):
        async with world.turn_of(part):
            await world.kill(part)
            await asyncio.sleep(fault.length_s)
            await part.start()


@kind("stop-leader", Habit(3, 12.0, "control", at_hub=True, needs=STANDBY))
async def _stop_leader(world: World, fault: Fault) -> None:
    """Have the control plane that leads stand still, for longer than the other one is patient, or not."""
    if part := await _leader(world, fault):
        async with world.turn_of(part):
            await world.stand_still(part, fault.length_s)


@kind("hand-over", Habit(2, 3.0, "control", at_hub=True, needs=STANDBY))
async def _hand_over(world: World, fault: Fault) -> None:
    """Have the control plane that leads hand over; it refuses where the other one is not ready."""
    if await _leader(world, fault):
        try:
            async with world.hub.connection() as client:
                await client.request(subject("hand-over"), b"{}", timeout=_ASK_S)
        except (NatsError, OSError):
            world.idle[fault.kind] += 1
        await asyncio.sleep(fault.length_s)


async def _leader(world: World, fault: Fault) -> Part | None:
    """Return the control plane that leads; None, and counted, where none says so for as long as takeovers take."""
    assert world.machines is not None
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _LEADS_S
    while clock.time() < deadline_s:
        try:
            # Each time over another connection: the server of one may be parted from the others.
            async with world.hub.connection() as client:
                status = await world.machines.status(client)
        except (NatsError, OSError):
            status = {}
        if status:
            return world.machines.parts[status["leads"]]
        await asyncio.sleep(_LOOK_S)
    world.idle[fault.kind] += 1
    return None


async def machines_differ(machines: Machines) -> list[str]:
    """Return what is wrong with two machines at rest: one leads, the other is ready, and both hold the same rows."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _ALIKE_S
    while True:
        async with machines.client() as client:
            status = await machines.status(client)
        tables = [await asyncio.to_thread(machines.tables, name) for name in machines.places]
        wrong = of_machines(status, *tables)
        if not wrong or clock.time() > deadline_s:
            return wrong
        await asyncio.sleep(_LOOK_S)


def of_machines(status: Mapping[str, Any], one: Tables, other: Tables) -> list[str]:
    """Return what is wrong, by the word of the one that leads and the rows of both."""
    wrong = [
        f"machine {each['machine']} is not ready: {each['why']}"
        for each in status.get("follow", [])
        if not each["ready"]
    ]
    if not status.get("leads"):
        wrong.append("no machine leads")
    names = sorted(one.keys() | other.keys())
    differ = [name for name in names if one.get(name) != other.get(name)]
    return [*wrong, *(f"the machines' hub.db differ in table {name}" for name in differ)]
