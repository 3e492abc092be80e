"""An account of readings: which were sent, which have arrived, and whether each did once as it was. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.support.errors import LostDataError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from backhaul_codec import Point


class Series(NamedTuple):
    """A place of a reading: two readings of one series differ in time."""

    node: str
    type: str
    key: str
    time_ns: int


class Account:
    """Readings of one vehicle. Messages may come again under one identity: only the first counts."""

    def __init__(self) -> None:
        self.arrived = 0
        self.doubled = 0
        self.repeats = 0
        self._sent: dict[Series, object] = {}
        self._there: set[Series] = set()
        self._messages: set[Hashable] = set()

    def send(self, points: Iterable[Point]) -> None:
        """Take in readings just before they are sent."""
        self._sent.update((place_of(point), point.value) for point in points)

    def take(self, points: Iterable[Point], message: Hashable = None) -> bool:
        """Take in the readings of a message at the hub; return whether it is not a repeat.

        `message` is its identity; None where the system has none, so that each counts.
        """
        if message is not None:
            if message in self._messages:
                self.repeats += 1
                return False
            self._messages.add(message)
        for point in points:
            place = place_of(point)
            if place in self._there or self._sent.get(place) != point.value:
                self.doubled += 1
                continue
            self._there.add(place)
            self.arrived += 1
        return True

    @property
    def missing(self) -> int:
        """Return how many readings have not arrived."""
        return len(self._sent) - len(self._there)

    def is_there(self, point: Point) -> bool:
        """Tell whether a reading has arrived."""
        return place_of(point) in self._there

    def require_exact(self, where: str) -> None:
        """Check that each reading is there once as it was sent, and no other.

        Raises:
            LostDataError: it is not so; a reading with another value is missing and doubled.
        """
        if self.missing or self.doubled:
            raise LostDataError(where, missing=self.missing, doubled=self.doubled)


def place_of(point: Point) -> Series:
    """Return the place of a reading."""
    return Series(point.node, point.type, point.key, point.time)
