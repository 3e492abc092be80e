"""A made-up town: its streets, from a seed, and a vehicle that follows them. Pure.

Talbruck lies on a river with two bridges. Its blocks are no squares, its streets bend a little; an avenue crosses it, and a
ring road goes around.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import cache

LAT, LON = 49.012, 8.405
"""The middle of the town."""
METRES_A_DEGREE = 111_320.0
_COLUMNS, _ROWS = 11, 9
_BLOCK_M = 210.0
_RIVER = 4
"""The river flows below this row of junctions."""
_BRIDGES = (2, 7)
_TURN = math.radians(17)
"""All of it is turned a little."""
_STREET_KMH, _AVENUE_KMH, _RING_KMH = 30, 50, 70
_BEND_POINTS = 7

Spot = tuple[float, float]
"""Metres east and north of the middle of the town."""


def _turned(x: float, y: float) -> Spot:
    """Return the spot of a place that is given in blocks along rows and columns."""
    east = x * math.cos(_TURN) - y * math.sin(_TURN)
    north = x * math.sin(_TURN) + y * math.cos(_TURN)
    return east * _BLOCK_M, north * _BLOCK_M


BANKS: tuple[Spot, ...] = tuple(
    _turned(x, 0.53 + 0.12 * math.sin(x / 2.3) + side * 0.17)
    for side, bank in ((-1, range(-40, 41)), (1, range(40, -41, -1)))
    for x in bank
)
"""The river, as a closed line."""


@dataclass(frozen=True, slots=True)
class Street:
    """A piece of a street, from one junction to the next.

    Attributes:
        start, end: numbers of junctions.
        line: the way between them.
        limit_kmh: how fast one may drive there.
    """

    start: int
    end: int
    line: tuple[Spot, ...]
    limit_kmh: int

    @property
    def length_m(self) -> float:
        """How long it is."""
        return sum(math.dist(a, b) for a, b in zip(self.line, self.line[1:], strict=False))

    def at(self, metres: float) -> Spot:
        """Return the spot so many metres from its start."""
        for a, b in zip(self.line, self.line[1:], strict=False):
            piece = math.dist(a, b)
            if metres <= piece:
                part = metres / piece
                return a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part
            metres -= piece
        return self.line[-1]

    def leads(self) -> float:
        """Return the direction in which it ends, in radians."""
        (x, y), (to_x, to_y) = self.line[-2:]
        return math.atan2(to_y - y, to_x - x)

    def begins(self) -> float:
        """Return the direction in which it begins, in radians."""
        (x, y), (to_x, to_y) = self.line[:2]
        return math.atan2(to_y - y, to_x - x)


@cache
def streets(seed: int = 7) -> tuple[tuple[Street, ...], ...]:
    """Return by junction the streets that begin there; each leads both ways, and no junction is out of reach."""
    dice = random.Random(seed)  # noqa: S311 - a made-up town
    spots = [_spot(number, dice) for number in range(_COLUMNS * _ROWS)]
    found: list[list[Street]] = [[] for _ in spots]
    for number, (x, y) in enumerate(spots):
        column, row = number % _COLUMNS, number // _COLUMNS
        for other, along in ((number + 1, "row"), (number + _COLUMNS, "column")):
            if (along == "row" and column == _COLUMNS - 1) or other >= len(spots):
                continue
            edge = row in (0, _ROWS - 1) if along == "row" else column in (0, _COLUMNS - 1)
            if along == "column" and row == _RIVER and not (edge or column in _BRIDGES):
                continue
            # Some blocks are joined to larger ones.
            if not edge and row != _RIVER and dice.random() < 0.09:
                continue
            avenue = along == "column" and column in _BRIDGES
            limit = _RING_KMH if edge else _AVENUE_KMH if avenue else _STREET_KMH
            line = _bent((x, y), spots[other], dice.uniform(-0.1, 0.1))
            found[number].append(Street(number, other, line, limit))
            found[other].append(Street(other, number, line[::-1], limit))
    return tuple(map(tuple, found))


def _spot(number: int, dice: random.Random) -> Spot:
    column, row = number % _COLUMNS, number // _COLUMNS
    # Away from the middle the blocks become larger.
    x, y = (
        (at - most / 2) * (1 + 0.06 * abs(at - most / 2))
        for at, most in ((column, _COLUMNS - 1), (row, _ROWS - 1))
    )
    return _turned(x + dice.uniform(-0.16, 0.16), y + dice.uniform(-0.16, 0.16))


def _bent(start: Spot, end: Spot, bend: float) -> tuple[Spot, ...]:
    """Return a curve whose middle lies beside the straight line, by a part of its length."""
    along = end[0] - start[0], end[1] - start[1]
    middle = (start[0] + end[0]) / 2 - bend * along[1], (start[1] + end[1]) / 2 + bend * along[0]
    line = []
    for step in range(_BEND_POINTS):
        t = step / (_BEND_POINTS - 1)
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t * t
        line.append(
            (a * start[0] + b * middle[0] + c * end[0], a * start[1] + b * middle[1] + c * end[1])
        )
    return tuple(line)


@dataclass(slots=True)
class Way:
    """The way of one vehicle through the town.

    Args:
        dice: chooses where it begins, and at each junction.
    """

    dice: random.Random
    street: Street = field(init=False)
    metres: float = field(init=False)
    """How far it is on this street."""

    def __post_init__(self) -> None:
        self.street = self.dice.choice([each for some in streets() for each in some])
        self.metres = self.dice.uniform(0, self.street.length_m)

    def drive(self, metres: float) -> None:
        """Go on by so many metres: at a junction rather straight on, and back only where no other street leads on."""
        self.metres += metres
        while self.metres > self.street.length_m:
            self.metres -= self.street.length_m
            leads = self.street.leads()
            on = streets()[self.street.end]
            ahead = [each for each in on if each.end != self.street.start] or list(on)
            weights = [1.2 + math.cos(each.begins() - leads) for each in ahead]
            [self.street] = self.dice.choices(ahead, weights)

    def place(self) -> tuple[float, float]:
        """Return latitude and longitude, in degrees."""
        east, north = self.street.at(self.metres)
        degree = METRES_A_DEGREE * math.cos(math.radians(LAT))
        return LAT + north / METRES_A_DEGREE, LON + east / degree
