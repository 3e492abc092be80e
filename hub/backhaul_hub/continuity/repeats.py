"""Messages that came again, until somebody has looked whether they are the same. Pure.

Each links to the one before it, so that of a run of them the last stands for all: where it is the message
that UP holds, all of them are. Where it is not, the other history begins within the run if the run's first
message links to what UP holds before it. Else it begins below, in messages that never came here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from backhaul_hub.continuity.lane_key import LaneKey

LANES_MAX = 1024
"""Lanes of which a repeat waits to be compared."""
RUNS_MAX = 8
"""Of each lane."""


class Run(NamedTuple):
    """Messages of one lane that came again, each linked to the one before it.

    `link`: the hash that the first names as the one before it. `own`: the hash of the last.
    """

    first: int
    link: bytes
    last: int
    own: bytes


class Repeats:
    """The runs of all lanes. `unclear` is called with a lane of which one is given up unseen."""

    def __init__(self, unclear: Callable[[LaneKey], None]) -> None:
        self._unclear = unclear
        self._newest: dict[LaneKey, Run] = {}
        self._waiting: dict[LaneKey, list[Run]] = {}

    def add(self, key: LaneKey, seq: int, link: bytes, own: bytes) -> None:
        """Take in a message that is held, and may be another one."""
        run, waiting = self._newest.get(key), self._waiting.get(key, [])
        longer = Run(seq, link, seq, own)
        if run is not None and self.goes_on(key, seq, link):
            longer = run._replace(last=seq, own=own)
            waiting = [each for each in waiting if each != run]
        elif len(waiting) >= RUNS_MAX or (not waiting and len(self._waiting) >= LANES_MAX):
            self._unclear(key)
            waiting = waiting[1:]
        self._newest[key] = longer
        self._waiting[key] = [*waiting, longer]

    def goes_on(self, key: LaneKey, seq: int, link: bytes) -> bool:
        """Say whether a message is the next one of the lane's newest run."""
        run = self._newest.get(key)
        return run is not None and run.last + 1 == seq and bool(link) and run.own == link

    def take(self, of: Collection[LaneKey] | None = None) -> dict[LaneKey, list[Run]]:
        """Return the runs that nobody has looked at, once. `of`: of these lanes alone."""
        keys = [key for key in self._waiting if of is None or key in of]
        return {key: self._waiting.pop(key) for key in keys}

    def forget(self, key: LaneKey) -> None:
        """Take in that a lane is known no more."""
        self._newest.pop(key, None)
        self._waiting.pop(key, None)


def forks_from(run: Run, hashes: Sequence[str | None]) -> int:
    """Return the seq from which on a run's history differs from UP's; 0: it is the same.

    Never too high; 0 as well where UP cannot say. `hashes`: in hex, of what UP holds of the seq before the
    run's first, and of its last.
    """
    before, held = hashes
    if not held or held == run.own.hex():
        return 0
    return run.first if before and before == run.link.hex() else 1
