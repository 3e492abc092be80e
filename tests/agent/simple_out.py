"""A stream OUT, the connections to it and the hub behind it, as simple as can be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from backhaul_agent.uplink.appender import Tail
from backhaul_codec.ranges import RangeSet

EPOCH = 7


class Stored(NamedTuple):
    """A message: its seq, and the position it tells; 0, 0 is a local program's."""

    sequence: int
    seq: int
    position: int


@dataclass
class Stream:
    """What the server does with appends: stores one only if its expectation holds."""

    created: int = 1
    last: int = 0
    stored: list[Stored] = field(default_factory=list)

    def append(self, seq: int, position: int, expected: int) -> bool:
        if expected != self.last:
            return False
        self.last += 1
        self.stored.append(Stored(self.last, seq, position))
        return True

    def tail(self) -> Tail:
        for message in reversed(self.stored):
            if message.seq:
                return Tail(self.last, EPOCH, message.position)
        return Tail(self.last)

    def purge(self, next_sequence: int) -> None:
        self.last = next_sequence - 1
        self.stored.clear()

    def copy(self) -> Stream:
        return Stream(self.created, self.last, self.stored[:])


class Flying(NamedTuple):
    """An append on its way."""

    generation: int
    seq: int
    position: int
    expected: int


@dataclass
class Connection:
    flying: list[Flying] = field(default_factory=list)


class Hub:
    """A source that passes over what comes under a sequence it has seen, and what it holds."""

    def __init__(self) -> None:
        self.created = 0
        self.passed = 0
        self.held = RangeSet()
        self.ever: set[int] = set()
        self.explained: set[int] = set()
        self.highest = 0

    def read(self, stream: Stream) -> None:
        if stream.created != self.created:
            self.created, self.passed = stream.created, 0
        for message in stream.stored:
            if message.sequence > self.passed and message.seq:
                self.held.add(message.seq)
                self.ever.add(message.seq)
                self.highest = max(self.highest, message.seq)
        self.passed = max(self.passed, stream.last)

    @property
    def watermark(self) -> int:
        return self.accounted.contiguous

    @property
    def accounted(self) -> RangeSet:
        return self.held.union(
            RangeSet((seq, seq) for seq in self.explained if seq <= self.highest)
        )

    def lose(self, low: int, high: int) -> None:
        kept = [*self.held.holes(1, self.highest), (low, high)]
        gone = RangeSet(kept)
        self.held = RangeSet(gone.holes(1, self.highest)) if self.highest else RangeSet()
