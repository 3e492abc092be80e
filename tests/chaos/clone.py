"""What two machines with one cloned disk may do that one machine never does. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backhaul_codec.protocol.words import spare_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.damage import Damage
    from tests.chaos.diary import Entry
    from tests.chaos.evidence import LaneName, Place

_SPARES_MAX = 8
"""How many spare epochs, each of the one before, a message may go through: one for each other message in its place."""


@dataclass(slots=True)
class Clone:
    """A disk that was cloned, and when the second machine, which had the copy, was in the vehicle.

    `open`: what had no final place or time on the disk: in no message yet, or in one that waits for the
    time. Each machine finishes that by itself. `ends`: of each lane the last seq of what both have to the byte.
    `second_ns`, `first_ns`: from when to when the second one was in the vehicle, 0 where it never came, or was.
    """

    device: str
    open: Damage
    ends: dict[LaneName, int] = field(default_factory=dict)
    second_ns: int = 0
    first_ns: int = 0

    def of_second(self, entry: Entry) -> bool:
        """Whether the second machine gave the answer."""
        answered_ns = entry.answered_ns
        return entry.device == self.device and self.second_ns <= answered_ns < self.first_ns

    def may_differ(self, place: Place) -> bool:
        """Whether each machine may have a message of its own there."""
        if place.lane.device != self.device or not self.second_ns:
            return False
        end = self.ends.get(place.lane)
        return place.seq > end if end is not None else place.lane in self.spares()

    def spares(self) -> Iterable[LaneName]:
        """Yield the spare epochs of all that stood on the disk."""
        for lane in self.ends:
            epoch = lane.epoch
            for _ in range(_SPARES_MAX):
                epoch = spare_of(epoch)
                yield lane._replace(epoch=epoch)
