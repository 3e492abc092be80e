"""Schedules of faults: pure. A seed gives one, and one line of text says it all, to be run again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HUB = "hub"
_BREATH_S = 0.3  # between two faults of one part: time to come to life, not to settle
_TEXT = re.compile(r"([0-9.]+)\+([0-9.]+):([a-z0-9-]+)@([A-Za-z0-9_-]+)")


class Habit(NamedTuple):
    """How often something goes wrong, compared with the rest, for how long at most, and with what.

    Faults of one part of one target never overlap; all others do, as chance has it.
    """

    weight: float
    longest_s: float
    part: str
    at_hub: bool = False
    needs: str = ""
    """What a run must have for it (`kinds.py`)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when it begins, in seconds from the start, how long it lasts, what, and to whom."""

    at_s: float
    length_s: float
    kind: str
    target: str
    """A device, or `hub`."""

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.length_s

    def __str__(self) -> str:
        return f"{self.at_s:.2f}+{self.length_s:.2f}:{self.kind}@{self.target}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` has made. Raises: ValueError: it is no fault."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no fault, as 1.50+0.30:cut@VID-001 is one")
        at_s, length_s, kind, target = match.groups()
        return cls(float(at_s), float(length_s), kind, target)


def draw(
    seed: int,
    habits: Mapping[str, Habit],
    devices: Sequence[str],
    *,
    length_s: float,
    pause_s: float,
) -> list[Fault]:
    """Return the faults of a seed, in order of time; all are over by `length_s`.

    Args:
        seed: with the same habits and devices it gives the same faults.
        habits: by kind.
        devices: ids of the vehicles.
        length_s: how long the whole takes, in seconds.
        pause_s: the mean time between the beginnings of two faults, in seconds.
    """
    random = Random(seed)
    free_at_s: dict[tuple[str, str], float] = {}
    faults: list[Fault] = []
    now_s = 0.0
    while (now_s := now_s + random.expovariate(1 / pause_s)) < length_s:
        kind = random.choices(list(habits), [habit.weight for habit in habits.values()])[0]
        habit = habits[kind]
        target = HUB if habit.at_hub else random.choice(devices)
        # Short ones are common, long ones are not rare.
        longest_s = min(habit.longest_s, length_s - now_s) * random.random() ** 2
        # What is printed is what runs: rounded down, never beyond the end.
        fault = Fault(_hundredths(now_s), _hundredths(longest_s), kind, target)
        if fault.at_s >= free_at_s.get((target, habit.part), 0.0):
            faults.append(fault)
            free_at_s[target, habit.part] = fault.end_s + _BREATH_S
    return faults


def to_line(faults: Iterable[Fault]) -> str:
    """Write faults as one word of a command line."""
    return ",".join(map(str, faults))


def from_line(
    line: str, habits: Mapping[str, Habit], devices: Sequence[str] | None = None
) -> list[Fault]:
    """Read what `to_line` has written.

    Raises:
        ValueError: something in it is no fault, or of an unknown kind, or of nobody in `devices`.
    """
    faults = [Fault.parse(text) for text in line.split(",") if text]
    for fault in faults:
        if fault.kind not in habits:
            raise ValueError(f"{fault}: there is no {fault.kind}, only {', '.join(habits)}")
        allowed = [HUB] if habits[fault.kind].at_hub else devices
        if allowed is not None and fault.target not in allowed:
            raise ValueError(f"{fault}: it can happen to {', '.join(allowed)} only")
    return faults


def _hundredths(seconds: float) -> float:
    return int(seconds * 100) / 100
