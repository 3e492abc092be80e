"""Which lanes of connected vehicles are pushed, and so not sourced. Pure.

A vehicle asks for it lane by lane (`protocol/push.py`), and says after which seq it pushes. The lane's source goes
once the hub has everything up to there: from then on nothing that the source still had under way is missed. Its
pushes may come twice until then. Whatever happens to the link or the device, all its lanes are sourced again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backhaul_codec.kinds import Lane
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.links.sources import PUSHED, Place, SourcePlan
from backhaul_hub.nats.jetstream import Json

_SILENT_NS_MAX = 5_000_000_000
"""A source of PUSH that has heard nothing for so long does not work: each second has a heartbeat."""


class Pushing(NamedTuple):
    """A vehicle's word: of its epoch, these lanes it pushes after these seqs, and no others. Epoch 0: it never pushes."""

    device: str
    epoch: int
    lanes: Mapping[Lane, int]


class Change(NamedTuple):
    """Lanes that are not to be sourced any more, and those that are again."""

    asleep: Collection[Place] = ()
    awake: Collection[Place] = ()

    def __bool__(self) -> bool:
        return bool(self.asleep or self.awake)


@dataclass(slots=True)
class _Pusher:
    """The record of one vehicle since its link came up."""

    asleep: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """The lanes that are, each by the epoch and the seq for which it got its leave."""
    works: bool = False
    """Whether the source of what it pushes was heard last time."""


class Pushes:
    """Decides which lanes are asleep.

    Args:
        holds: says whether the hub has all of a lane's current epoch, up to a seq at least.
    """

    def __init__(self, holds: Callable[[LaneKey, int], bool]) -> None:
        self._holds = holds
        self._pushers: dict[str, _Pusher] = {}

    def ask(self, word: Pushing, places: Collection[Place], plan: SourcePlan) -> Change:
        """Take in a vehicle's word; return the change of its sources.

        Args:
            word: the vehicle's.
            places: all lanes of the device.
            plan: of its shard. A device of which it sources nothing is not connected.
        """
        if not word.epoch and word.device not in self._pushers:
            return Change()
        pusher = self._pushers.setdefault(word.device, _Pusher())
        pushed = Place(word.device, PUSHED)
        asked = {
            place: (word.epoch, word.lanes[place.lane])
            for place in places
            if place.lane in word.lanes
        }
        # Also where a lane is asked for anew: what came between was not pushed.
        awake = {place for place, leave in pusher.asleep.items() if asked.get(place) != leave}
        for place in awake:
            del pusher.asleep[place]
        if not word.epoch or not (pusher.asleep or awake or plan.wanted & set(places)):
            return Change(awake=awake)
        if pushed not in plan.wanted:
            return Change(awake={*awake, pushed})
        if not (pusher.works and pushed in plan.applied):
            return Change(awake=awake)
        asleep = {
            place: leave
            for place, leave in asked.items()
            if place in plan.wanted and self._holds(LaneKey(*place, leave[0]), leave[1])
        }
        pusher.asleep |= asleep
        return Change(asleep.keys(), awake)

    def heard(self, device: str, source: Json) -> None:
        """Take in how the server lists the source of a device's pushes."""
        if device in self._pushers:
            self._pushers[device].works = 0 <= source["active"] < _SILENT_NS_MAX

    def wake(self, place: Place) -> Place | None:
        """Have a lane sourced again; return it where it was not."""
        pusher = self._pushers.get(place.device)
        if pusher is None or place not in pusher.asleep:
            return None
        del pusher.asleep[place]
        return place

    def lanes(self, device: str) -> list[Lane]:
        """Return the lanes of a device that it may push: no source brings them."""
        return sorted(place.lane for place in self.asleep(device))

    def asleep(self, device: str) -> set[Place]:
        """Return the places of a device that would be sourced if it did not push."""
        pusher = self._pushers.get(device)
        return set(pusher.asleep) if pusher else set()

    def gone(self, device: str) -> None:
        """Take in that a device's link is gone, or came up anew, or that its lanes are others: none is asleep."""
        self._pushers.pop(device, None)
