"""How old the ledger's messages are, without a time in every row: a pure core.

A mark says: at this time, each lane's next seq was this. What stands before a mark is at least as
old as the mark, so a few dozen marks tell the age of everything to within a part of the limit.
Marks are made only while the clock is known to be right; what was committed without one counts
from the next mark on, so a wrong clock keeps a message too long, never too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

GRAIN = 64  # marks over the age limit
GRAIN_NS_MIN = 1_000_000_000


class AgeMark(NamedTuple):
    """At ``time_ns`` (Unix), the next seq of each lane (by its id) was this."""

    time_ns: int
    next_seqs: Mapping[int, int]


class Ages:
    """The marks of a ledger, oldest first. ``age_s_max`` 0: nothing is ever too old."""

    def __init__(self, age_s_max: float, marks: Iterable[AgeMark] = ()) -> None:
        self.age_s_max = age_s_max
        self._age_ns = round(age_s_max * 1e9)
        self.grain_s = max(self._age_ns // GRAIN, GRAIN_NS_MIN) / 1e9
        self.marks = sorted(marks, key=lambda mark: mark.time_ns)

    def due(self, now_ns: int) -> bool:
        """Whether a mark should be made: the last one is a while ago, or in the future."""
        if not self._age_ns:
            return False
        return not self.marks or not 0 <= now_ns - self.marks[-1].time_ns < self.grain_s * 1e9

    def add(self, mark: AgeMark) -> None:
        """Take a mark in. One with a later time was made by a wrong clock: this one replaces it."""
        self.marks = [old for old in self.marks if old.time_ns < mark.time_ns] + [mark]

    def expired(self, now_ns: int) -> Mapping[int, int]:
        """Return before which seq of each lane everything is too old; drop marks not needed."""
        if not self._age_ns:
            return {}
        old = [mark for mark in self.marks if mark.time_ns <= now_ns - self._age_ns]
        if not old:
            return {}
        self.marks = self.marks[len(old) - 1 :]
        return old[-1].next_seqs
