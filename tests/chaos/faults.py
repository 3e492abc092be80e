"""What can go wrong with links and processes; the others: `faults_*.py`."""

from __future__ import annotations

import asyncio
import pkgutil
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING

from tests import chaos
from tests.chaos import link as toxics
from tests.chaos.kinds import HABITS, KINDS, kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.chaos.link import Toxic
    from tests.chaos.links import Links
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

for _module in pkgutil.iter_modules(chaos.__path__):
    if _module.name.startswith("faults_"):
        import_module(f"{chaos.__name__}.{_module.name}")

__all__ = ["HABITS", "KINDS", "befall"]
_FLAP_S = (0.15, 0.5, 3.0)
"""How long a link that flaps is down, and up: shorter than it takes to come up, and long enough."""
_STORM_S = 0.4
_TORN_BYTES_MAX = 4_000


async def befall(world: World, faults: list[Fault]) -> None:
    """Bring all faults about, each at its time from now; return when the last one is over."""
    start_s = asyncio.get_running_loop().time()

    async def at_its_time(fault: Fault) -> None:
        await asyncio.sleep(start_s + fault.at_s - asyncio.get_running_loop().time())
        await KINDS[fault.kind](world, fault)

    async with asyncio.TaskGroup() as group:
        for fault in faults:
            group.create_task(at_its_time(fault))


@asynccontextmanager
async def _link(world: World, fault: Fault) -> AsyncIterator[Links]:
    """Have a link for oneself, and heal it at the end."""
    link = world.vehicles[fault.target].link
    async with world.turn(f"{fault.target} link"):
        try:
            yield link
        finally:
            await link.heal()


@kind("cut", Habit(4, 5.0, "link"))
async def _cut(world: World, fault: Fault) -> None:
    async with _link(world, fault) as link:
        await link.cut()
        await asyncio.sleep(fault.length_s)


@kind("flap", Habit(3, 15.0, "link"))
async def _flap(world: World, fault: Fault) -> None:
    end_s = asyncio.get_running_loop().time() + fault.length_s
    half_s = Random(str(fault)).choice(_FLAP_S)
    async with _link(world, fault) as link:
        while asyncio.get_running_loop().time() < end_s:
            await link.cut()
            await asyncio.sleep(half_s)
            await link.heal()
            await asyncio.sleep(half_s)


@kind("torn", Habit(3, 3.0, "link"))
async def _torn(world: World, fault: Fault) -> None:
    """End each connection after so many bytes that it may just do."""
    await _spoiled(toxics.torn(Random(str(fault)).randint(1, _TORN_BYTES_MAX)), world, fault)


async def _spoiled(toxic: Toxic, world: World, fault: Fault) -> None:
    async with _link(world, fault) as link:
        await link.spoil(toxic)
        await asyncio.sleep(fault.length_s)


for _name, _habit, _toxic in (
    ("half-open", Habit(3, 30.0, "link"), toxics.HALF_OPEN),
    ("reset", Habit(2, 4.0, "link"), toxics.RESET),
    ("late", Habit(2, 10.0, "link"), toxics.LATE),
    ("20kbit", Habit(2, 15.0, "link"), toxics.KBITS_20),
    ("100kbit", Habit(2, 15.0, "link"), toxics.KBITS_100),
    ("sliced", Habit(2, 10.0, "link"), toxics.SLICED),
):
    kind(_name, _habit)(partial(_spoiled, _toxic))


async def _kill(name: str, world: World, fault: Fault) -> None:
    part = world.part(fault, name)
    async with world.turn_of(part):
        await world.kill(part)
        await asyncio.sleep(fault.length_s)
        await part.start()


async def _freeze(name: str, world: World, fault: Fault) -> None:
    part = world.part(fault, name)
    async with world.turn_of(part):
        await world.stand_still(part, fault.length_s)


async def _storm(name: str, world: World, fault: Fault) -> None:
    """Kill and start again and again, each time a little later in its start."""
    part, random = world.part(fault, name), Random(str(fault))
    end_s = asyncio.get_running_loop().time() + fault.length_s
    async with world.turn_of(part):
        while asyncio.get_running_loop().time() < end_s:
            await world.kill(part)
            await part.start()
            await asyncio.sleep(random.random() * _STORM_S)


for _part, _at_hub, _weight in (
    ("agent", False, 1.0),
    ("leaf", False, 1.0),
    ("server", True, 0.7),
    ("control", True, 1.0),
):
    for _what, _function, _share, _longest_s in (
        ("kill", _kill, 3, 2.0),
        ("freeze", _freeze, 2, 4.0),
        ("storm", _storm, 1, 3.0),
    ):
        _habit = Habit(_weight * _share, _longest_s, _part, _at_hub)
        kind(f"{_what}-{_part}", _habit)(partial(_function, _part))
