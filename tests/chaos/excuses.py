"""What may be gone though it was acknowledged: what stood in a damaged ledger alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from backhaul_codec.subjects import LIVE
from tests.chaos.diary import happening_of, readings_of, write_of

if TYPE_CHECKING:
    from tests.chaos.damage import Damage
    from tests.chaos.diary import Happening, Reading, Told, Write
    from tests.chaos.evidence import Found


@dataclass(slots=True)
class Excused:
    """What damages excuse, by name; whatever else is gone is lost."""

    readings: set[Reading] = field(default_factory=set)
    happenings: set[Happening] = field(default_factory=set)
    writes: set[Write] = field(default_factory=set)

    @classmethod
    def of(cls, told: Told, found: Found) -> Self:
        """Return what is excused. The hub must know that the epoch is over: nobody else can say so.

        Where it is not, the agent goes on with the file, and has a receipt for each row that is no good.
        An epoch's first word is on `live`; another lane may have nothing to say in it.
        """
        excused = cls()
        going_on = {(lane.device, lane.epoch) for lane, _ in found.lanes() if lane.lane == LIVE}
        for damage in found.damages:
            if (damage.device, damage.epoch) not in going_on:
                excused._add(told, damage)
        return excused

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
