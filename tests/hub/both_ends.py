"""The heads of a hub and of one vehicle, and what each has to tell the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec.state.merge import HeadKey, Heads
from tests.support.hub_sync import DEVICE, FakeClock, Hub, Link, Vehicle

if TYPE_CHECKING:
    from backhaul_codec import Point

LIMIT = HeadKey("", "battery", "limit")


class Ends:
    """Both ends and what is between them."""

    def __init__(self, conflicts_max: int = 100) -> None:
        self.clock = FakeClock()
        self.hub = Hub(self.clock, conflicts_max=conflicts_max)
        self.vehicle = Vehicle(self.clock)
        self.link = Link(self.hub, self.vehicle)

    def tick(self) -> None:
        self.clock.ns += 1_000_000_000

    @property
    def heads(self) -> Heads:
        """The hub's heads of the device."""
        return self.hub.core.heads.of(DEVICE).heads


Written = tuple[str, int, str]


def written(point: Point) -> Written:
    """Return what tells one write from all others: both ends may use the same stamp."""
    return point.type, point.time, point.origin
