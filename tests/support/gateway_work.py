"""The work of a gateway: nodes with values that walk at random, read together or each at its own moment.

Pure: it says which values are read at which second of the work; whoever drives it waits and stamps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

VALUES = ("temperature", "humidity", "pressure", "voltage")
_LOW, _HIGH = 150, 800  # tenths
_STEP = 3  # tenths, up or down


class Value(NamedTuple):
    """A value that a node reads."""

    node: str
    type: str
    value: float


class Reading(NamedTuple):
    """Values that are read together, `at_s` seconds after the work has begun."""

    at_s: float
    values: list[Value]


@dataclass(frozen=True, slots=True)
class Work:
    """So many nodes with so many values each, all of them read once in `every_s`.

    With `spread` each node is read at a moment of its own, evenly over that time.
    """

    nodes: int
    values: int
    every_s: float = 1.0
    spread: bool = False

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [f"sensor{number:02d}" for number in range(self.nodes)]

    @property
    def points_a_turn(self) -> int:
        """Return how many values are read in `every_s`."""
        return self.nodes * self.values

    def readings(self, random: Random) -> Iterator[Reading]:
        """Yield the readings in the order of their time, for ever."""
        walks = {name: [RandomWalk(random) for _ in range(self.values)] for name in self.names}
        groups = [[name] for name in walks] if self.spread else [list(walks)]
        for turn in count():
            for number, group in enumerate(groups):
                at_s = (turn + number / len(groups)) * self.every_s
                yield Reading(
                    at_s,
                    [
                        Value(name, type_, walk.next())
                        for name in group
                        for type_, walk in zip(VALUES, walks[name], strict=False)
                    ],
                )


class RandomWalk:
    """A value with one decimal that goes up or down by at most 0.3, between 15 and 80."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tenths = random.randint(_LOW, _HIGH)

    def next(self) -> float:
        """Walk on by one step and return the value."""
        step = self._random.randint(-_STEP, _STEP)
        self._tenths = min(_HIGH, max(_LOW, self._tenths + step))
        return self._tenths / 10
