"""All kinds of faults: each is one function, and nowhere else is there anything to add for it.

A kind is called when its time has come, with the world and the fault, and returns when what it did is
over and undone; where it could do nothing, it counts that in `World.idle` or `passed_over`. What programs do then is their affair: that is what a run is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from tests.chaos.schedule import Fault, Habit
    from tests.chaos.world import World

    Kind = Callable[[World, Fault], Awaitable[None]]

HISTORY, CLUSTER, STANDBY = "history", "cluster", "standby"
"""What a run may have: a job of Spark that writes the table meanwhile, a hub of three servers, a second control plane."""
ALONE = "one server and one control plane"
"""What it has without the last two."""
KINDS: dict[str, Kind] = {}
HABITS: dict[str, Habit] = {}


def kind(name: str, habit: Habit) -> Callable[[Kind], Kind]:
    """Declare a kind of fault."""

    def declare(function: Kind) -> Kind:
        KINDS[name], HABITS[name] = function, habit
        return function

    return declare


def chosen(kinds: Mapping[str, Habit], only: Collection[str]) -> dict[str, Habit]:
    """Return the kinds that are named, in the order of all; all of them where none is.

    Raises:
        ValueError: there is no such kind.
    """
    if unknown := set(only) - kinds.keys():
        raise ValueError(f"there is no {', '.join(sorted(unknown))}, only {', '.join(kinds)}")
    return {name: habit for name, habit in kinds.items() if not only or name in only}


def habits(parts: Collection[str]) -> dict[str, Habit]:
    """Return the kinds that can happen in a run with these parts."""
    there = {"", *parts} | (set() if {CLUSTER, STANDBY} & {*parts} else {ALONE})
    # Sorted: what a seed draws must not depend on which module was imported first.
    return {name: habit for name, habit in sorted(HABITS.items()) if habit.needs in there}
