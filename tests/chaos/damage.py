"""What a ledger that is damaged, or replaced by an older copy, may lose: what the hub had not proved. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backhaul_codec import CodecError, decode
from backhaul_codec.subjects import SubjectError, parse_uplink
from tests.chaos.diary import Happening, Reading, Write
from tests.chaos.evidence import Uplinks, reading_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backhaul_codec import Point
    from tests.chaos.clone import Clone
    from tests.chaos.diary import Entry
    from tests.chaos.evidence import LaneName

_REFILLED_NS = 60 * 10**9
"""How long after its store was put back the hub may lack what vehicles have yet to send again."""


@dataclass(slots=True)
class Rollback:
    """The hub's store put back as it stood at `since_ns`: what came after that, vehicles alone have.

    `held`: how far the hub surely held each lane then. `until_ns`: when it was put back (0: not yet).
    """

    since_ns: int
    held: Mapping[LaneName, int]
    until_ns: int = 0

    def may_want(self, at_ns: int) -> bool:
        """Whether the hub may yet lose what it holds at a time, or lack it still."""
        return not self.until_ns or at_ns <= self.until_ns + _REFILLED_NS


def proved(lane: LaneName, watermark: int, rollbacks: Iterable[Rollback], at_ns: int) -> int:
    """Return up to where the hub has a lane for good, of which a ledger says that it is proved so far."""
    wanting = (each.held.get(lane, 0) for each in rollbacks if each.may_want(at_ns))
    return min([watermark, *wanting])


@dataclass(slots=True)
class Damage:
    """One damage done to a ledger, and what stood in it alone, as far as anybody could know.

    `readings`, `happenings` and `writes`: above what is `proved`, or in no message yet. Until `until_ns`
    the agent may have kept more in the damaged file: then it set it aside (0: it never did).
    """

    device: str
    epoch: int
    at_ns: int
    until_ns: int = 0
    inode: int = 0
    """Which file was damaged."""
    readings: set[Reading] = field(default_factory=set)
    happenings: set[Happening] = field(default_factory=set)
    writes: set[Write] = field(default_factory=set)
    put_back: bool = False
    """It was replaced by an older copy: where no word of it had left the vehicle, nobody can know."""
    since_ns: int = 0
    """When that copy was made."""
    in_out: Damage | None = None
    """What waited in OUT then, and nowhere else."""
    dictionaries: list[bytes] = field(default_factory=list)
    """The ledger's: its messages may be packed against them."""
    clone: Clone | None = None
    """It went away with the second machine of a cloned disk."""

    def take(self, other: Damage) -> None:
        """Be the damage of what is in another, too."""
        self.readings |= other.readings
        self.happenings |= other.happenings
        self.writes |= other.writes

    def leave(self, other: Damage) -> None:
        """Be no damage of what is in another."""
        self.readings -= other.readings
        self.happenings -= other.happenings
        self.writes -= other.writes

    def add_rows(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take in messages of the ledger, by their subjects on the vehicle."""
        made = Uplinks()
        for dictionary in self.dictionaries:
            made.dictionaries.know(self.device, dictionary)
        for subject, body in rows:
            made.add(f"up.{self.device}.{subject}", body)
            self.writes |= _writes(self.device, f"up.{self.device}.{subject}", body)
        self.readings |= made.readings.keys()
        self.happenings |= made.happenings.keys()

    def add_staged(self, points: Iterable[Point]) -> None:
        """Take in points that were acknowledged and are in no message."""
        self.readings |= {
            reading_of(self.device, point.node, point.time, point.value)
            for point in points
            if isinstance(point.value, float)
        }

    def during(self, entry: Entry) -> bool:
        """Whether something was kept after the damage, and before the file was set aside."""
        return entry.device == self.device and self.at_ns <= entry.answered_ns and (
            entry.asked_ns <= self.until_ns
        )  # fmt: skip


def _writes(device: str, subject: str, body: bytes) -> set[Write]:
    try:
        uplink = parse_uplink(subject)
        if uplink.letter != "p":
            return set()
        points = decode(body, node=uplink.node, type=uplink.type, key=uplink.key).points
    except (CodecError, SubjectError):
        return set()
    return {
        Write(device, point.node, point.value)
        for point in points
        if point.type == "number" and isinstance(point.value, float)
    }
