"""The state of one lane at the hub: seqs held, seen and explained, and its gaps. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.chain import Chain


class Explained(NamedTuple):
    """Seqs that will never come, and the vehicle's word why."""

    low: int
    high: int
    reason: str


@dataclass(slots=True)
class LaneState:
    """The hub's book of one (device, lane, epoch)."""

    held: RangeSet = field(default_factory=RangeSet)
    """Seqs that are in UP, or were until its limits of age and size took them."""
    aged: RangeSet = field(default_factory=RangeSet)
    """Those of `held` that the limits took."""
    seen: RangeSet = field(default_factory=RangeSet)
    """Seqs that ever were in UP; those not `held` the hub has lost."""
    explained: RangeSet = field(default_factory=RangeSet)
    """Seqs that will never come, by a receipt from the device."""
    receipts: list[Explained] = field(default_factory=list)
    """The same with reasons; no seq twice."""
    said: int = 0
    """The highest seq that the vehicle has spoken of in a mark."""
    messages: int = 0
    """Messages that were new."""
    repeats: int = 0
    """Messages whose seq had been seen already."""
    body_bytes: int = 0
    """Size of the new messages as they came over the wire, without subject and headers."""
    last_seen_ns: int = 0
    """When UP stored the newest of them; ns since the Unix epoch."""
    chain: Chain = field(default_factory=Chain)
    """Whether what is held is one history."""
    waiting: dict[bytes, RangeSet] = field(default_factory=dict)
    """Seqs whose messages stand in UP until a dictionary comes, by its digest; in memory alone."""

    @property
    def accounted(self) -> RangeSet:
        """Seqs that are held or explained."""
        return self.held.union(self.explained) if self.explained else self.held

    @property
    def watermark(self) -> int:
        """The highest seq below which everything is held or explained."""
        return self.accounted.contiguous

    @property
    def proven(self) -> tuple[int, bytes]:
        """How far all is held or explained and is one history, and the hash of the message there."""
        return self.chain.proven(self.watermark)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges up to the newest seq seen that are neither held nor explained."""
        accounted = self.accounted
        return accounted.holes(1, max(accounted.highest, self.seen.highest))

    @property
    def owed(self) -> list[tuple[int, int]]:
        """The gaps, and the seqs above them up to the last one that the vehicle has spoken of."""
        accounted = self.accounted
        return accounted.holes(1, max(accounted.highest, self.seen.highest, self.said))

    @property
    def wanted(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The gaps, and the seqs owed, without those that wait in UP: sent again they would wait there twice."""
        there = self.accounted
        for seqs in self.waiting.values():
            there = there.union(seqs)
        newest = max(self.accounted.highest, self.seen.highest)
        return there.holes(1, newest), there.holes(1, max(newest, self.said))

    @property
    def lost(self) -> int:
        """How many messages UP has had and has lost."""
        return self.seen.total - self.held.total

    @property
    def whole(self) -> bool:
        """Whether nothing is owed; cheap where nothing is."""
        known = max(self.seen.highest, self.explained.highest, self.said)
        return (len(self.held) == 1 and self.held.contiguous >= known) or not self.owed

    def goes_on(self, seq: int, link: bytes, own: bytes) -> bool:
        """Take in a message that follows all that was ever seen, and links to the last; False: it does not.

        With the results of the steps that all other messages take (`Continuity.arrived`).
        """
        if seq - 1 != self.seen.highest or seq - 1 != self.held.highest:
            return False
        if not self.chain.goes_on(seq, link, own):
            return False
        self.held.add(seq)
        self.seen.add(seq)
        return True

    def explain(self, low: int, high: int, reason: str, behind: bytes) -> None:
        """Take in that `low..high` will never come; the first word on a seq stands.

        `behind`: the hash that the message after them names as the one before it; empty where it is not said.

        Raises:
            ValueError: where `low..high` is no range of seqs.
        """
        untold = self.explained.holes(low, high)
        for start, end in untold:
            last = self.receipts[-1] if self.receipts else None
            if last and last.high + 1 == start and last.reason == reason:
                self.receipts[-1] = last._replace(high=end)
            else:
                self.receipts.append(Explained(start, end, reason))
        self.explained.add(low, high)
        for start, end in [(low, high)] if behind else untold:
            self.chain.explain(start, end, behind, self.held, self.explained)
