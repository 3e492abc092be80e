"""What may be gone though it was acknowledged: what stood in a damaged ledger, on a second machine, or in a lost registry alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from backhaul_codec.kinds import LIVE
from tests.chaos.diary import happening_of, readings_of, write_of

if TYPE_CHECKING:
    from tests.chaos.clone import Clone
    from tests.chaos.damage import Damage
    from tests.chaos.diary import Happening, Reading, Told, Write
    from tests.chaos.evidence import Found

_TAKEN_IN_NS = 120 * 10**9
"""How long it may take until the hub has said what it holds of that: a link may be cut."""


@dataclass(slots=True)
class Excused:
    """What damages and lost registries excuse, by name; whatever else is gone is lost."""

    readings: set[Reading] = field(default_factory=set)
    happenings: set[Happening] = field(default_factory=set)
    writes: set[Write] = field(default_factory=set)
    unknowable: set[Reading] = field(default_factory=set)
    """Those of which nobody may know that they were ever kept."""
    forgotten: set[str] = field(default_factory=set)
    """Commands of which the book says nothing any more, or less than is so.

    What was not over is taken in once more, and ends as `expired` where the vehicle's word was read before.
    """

    @classmethod
    def of(cls, told: Told, found: Found) -> Self:
        """Return what is excused. The hub must know that the epoch is over: nobody else can say so.

        Where it is not, the agent goes on with the file, and has a receipt for each row that is no good.
        Where it went on with an older copy, or a second machine went away, the hub may never have heard of
        what that lacks; but of a second machine of which it has any reading it knows that there was more.
        An epoch's first word is on `live`; another lane may have nothing to say in it.
        """
        excused = cls()
        going_on = {(lane.device, lane.epoch) for lane, _ in found.lanes() if lane.lane == LIVE}
        for damage in found.damages:
            if damage.put_back or (damage.device, damage.epoch) not in going_on:
                excused._add(told, damage)
            if damage.put_back and not _heard(told, found, damage.clone):
                # No word of it may ever have left the vehicle.
                excused.unknowable |= damage.readings
            if damage.in_out is not None and _lost_soon(found, damage):
                excused._add(told, damage.in_out)
        for _, until_ns in found.lost_registries:
            excused._add_lost(told, until_ns)
        return excused

    def _add_lost(self, told: Told, until_ns: int) -> None:
        """Excuse what stood in hub.db alone: the book of commands, and the hub's writes.

        Whether a write had reached its vehicle is not looked up: the newest before the loss may be undone.
        """
        for entry in told.entries:
            if entry.asked_ns > until_ns:
                continue
            if entry.what == "command":
                self.forgotten.add(entry.body["id"])
            elif entry.what == "config" and entry.body["node"].startswith("hub"):
                self.writes.add(write_of(entry))

    def _add(self, told: Told, damage: Damage) -> None:
        self.readings |= damage.readings
        self.happenings |= damage.happenings
        self.writes |= damage.writes
        for entry in told.entries:
            if entry.word != "kept" or not damage.during(entry):
                continue
            if entry.what == "readings":
                self.readings |= set(readings_of(entry))
            elif entry.what == "event":
                self.happenings.add(happening_of(entry))
            elif entry.what == "config" and not entry.body["node"].startswith("hub"):
                self.writes.add(write_of(entry))


def _heard(told: Told, found: Found, clone: Clone | None) -> bool:
    """Whether the hub has any reading that the second machine of a cloned disk alone has kept."""
    return clone is not None and any(
        found.up.readings.keys() & readings_of(entry)
        for entry in told.entries
        if entry.what == "readings" and entry.word == "kept" and clone.of_second(entry)
    )


def _lost_soon(found: Found, damage: Damage) -> bool:
    """Whether OUT was lost before the older copy of a ledger had taken in what stood there alone."""
    return any(
        device == damage.device and damage.at_ns <= at_ns <= damage.at_ns + _TAKEN_IN_NS
        for device, at_ns in found.store_losses
    )
