"""A device's words on itself between its points: how good its clock is, which heads it has seen. Pure.

Such a word is in force for what follows it on its lane. Messages may arrive out of order, where a
gap was filled, so the last few words are kept with their place, and of each lane its last.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from backhaul_hub.continuity.lane_key import LaneKey

_KEPT_MAX = 16
# More than a device has lanes in one epoch; what is in force on the oldest is forgotten then.
_LANES_MAX = 128

T = TypeVar("T")


class Word(msgspec.Struct, Generic[T], frozen=True, array_like=True):
    """One word and its place."""

    lane: str
    epoch: int
    seq: int
    said: T


class Words(Generic[T]):
    """The last words of one kind that a device has said, in the order of their arrival."""

    def __init__(self, words: list[Word[T]] | None = None) -> None:
        self.words = words or []

    def add(self, key: LaneKey, seq: int, said: T) -> bool:
        """Take one in; return whether it is news."""
        word = Word(key.lane, key.epoch, seq, said)
        if word in self.words:
            return False
        words = [*self.words, word]
        last = list({(word.lane, word.epoch): word for word in words}.values())[-_LANES_MAX:]
        self.words = [each for each in words[:-_KEPT_MAX] if each in last] + words[-_KEPT_MAX:]
        return True

    def at(self, key: LaneKey, seq: int, default: T) -> T:
        """Return the word that is in force at a place.

        It is the last before it on its lane in its epoch. Where that is not known, it is the last
        that was heard on any other; never one that was said later.
        """
        same = [word for word in self.words if (word.lane, word.epoch) == (key.lane, key.epoch)]
        before = [word for word in same if word.seq <= seq]
        if before:
            return max(before, key=lambda word: word.seq).said
        others = [word for word in self.words if word not in same]
        return others[-1].said if others else default
