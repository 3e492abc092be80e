"""A random schedule of faults, from a seed: pure, so that a seed says exactly what happened.

Modelled: links that are cut, processes that are killed (SIGKILL), frozen (SIGSTOP) or both at once in
several places, a leaf whose store is gone. NOT covered: power cuts (a kill leaves the page cache
whole), disks that fail or fill, links that lose or corrupt bytes, clocks that jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple


class Kind(StrEnum):
    """What goes wrong; the comment says when it is healed."""

    CUT = "link cut"  # after the fault's length
    FLAP = "link flapping"  # cut and healed in turn for that long
    AGENT_KILL = "agent killed"  # started again then
    LEAF_KILL = "leaf killed"
    LEAF_WIPE = "leaf killed, its store wiped"
    LEAF_FREEZE = "leaf frozen"  # goes on then
    HUB_KILL = "hub server killed"
    HUB_FREEZE = "hub server frozen"
    CONTROL_KILL = "control plane killed"


class _Habit(NamedTuple):
    weight: int
    longest_s: float
    part: str
    """What it happens to: one fault at a time for each part."""


_HABITS = {
    Kind.CUT: _Habit(4, 5.0, "link"),
    Kind.FLAP: _Habit(3, 3.0, "link"),
    Kind.AGENT_KILL: _Habit(3, 2.0, "agent"),
    Kind.LEAF_KILL: _Habit(3, 2.0, "leaf"),
    Kind.LEAF_WIPE: _Habit(2, 2.0, "leaf"),
    Kind.LEAF_FREEZE: _Habit(2, 4.0, "leaf"),
    Kind.HUB_KILL: _Habit(3, 2.0, "hub"),
    Kind.HUB_FREEZE: _Habit(2, 4.0, "hub"),
    Kind.CONTROL_KILL: _Habit(3, 2.0, "control"),
}
_AT_THE_HUB = (Kind.HUB_KILL, Kind.HUB_FREEZE, Kind.CONTROL_KILL)
_BREATH_S = 0.3  # between two faults of one part: time to come to life, not to settle


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when it begins, in seconds from the start, and how long it lasts."""

    at_s: float
    length_s: float
    kind: Kind
    device: str
    """Whose link, agent or leaf; empty where it is the hub's."""

    @property
    def part(self) -> str:
        """What it happens to."""
        return f"{self.device} {_HABITS[self.kind].part}".strip()

    @property
    def end_s(self) -> float:
        """When it is healed."""
        return self.at_s + self.length_s

    def __str__(self) -> str:
        return f"{self.at_s:6.2f} s  {self.length_s:4.2f} s  {self.device or 'hub':8} {self.kind}"


def schedule(
    seed: int, devices: tuple[str, ...], *, length_s: float, pause_s: float
) -> list[Fault]:
    """Return the faults of a seed, in order of time; all are over by `length_s`.

    Faults of different parts overlap as chance has it, those of one part never do.

    Args:
        seed: the same one gives the same faults.
        devices: ids of the vehicles.
        length_s: how long the whole takes, in seconds.
        pause_s: the mean time between the beginnings of two faults, in seconds.
    """
    random = Random(seed)
    free_at_s: dict[str, float] = {}
    faults: list[Fault] = []
    now_s = 0.0
    while (now_s := now_s + random.expovariate(1 / pause_s)) < length_s:
        kind = random.choices(list(_HABITS), [habit.weight for habit in _HABITS.values()])[0]
        device = "" if kind in _AT_THE_HUB else random.choice(devices)
        # Short ones are common, long ones are not rare.
        longest_s = min(_HABITS[kind].longest_s, length_s - now_s)
        fault = Fault(now_s, longest_s * random.random() ** 2, kind, device)
        if now_s >= free_at_s.get(fault.part, 0.0):
            faults.append(fault)
            free_at_s[fault.part] = fault.end_s + _BREATH_S
    return faults
