"""Counts of each program's flood, and the share of the agent's room that one may take. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backhaul_agent.errors import Code, RefusedError

if TYPE_CHECKING:
    from backhaul_agent.config import IngestConfig

# Of what may wait for the disk. A commit begins at half, so one program alone gets on as fast.
SHARE_OF_ONE = 0.75
# A program's messages are dealt with for so long before others get their turn. What has come by then is
# committed: in a shorter turn a few hundred readings that arrive together would take two commits.
TURN_S = 0.01
# Notes on refused messages that nobody waits for an answer to, of one program.
NOTE_EVERY_S = 0.01
TOO_MUCH = RefusedError(Code.BUSY, "more arrives than the agent takes: try again shortly")


@dataclass(slots=True, eq=False)
class Share:
    """A program's messages that wait for the disk, and their limit."""

    messages_max: float
    bytes_max: float
    messages: int = 0
    size: int = 0

    def require(self, size: int) -> None:
        """Let one more of it in. Raises: RefusedError: its share is taken."""
        if self.messages and (
            self.messages >= self.messages_max or self.size + size > self.bytes_max
        ):
            raise TOO_MUCH

    def take(self, size: int) -> None:
        """Note that a message of it waits."""
        self.messages += 1
        self.size += size

    def give(self, size: int) -> None:
        """Note that one waits no more."""
        self.messages -= 1
        self.size -= size


class Shares:
    """Keeps a program from taking all of the room. Messages without a program's name have no such bound.

    There is one for each program that ever sent: their names are of accounts, so there are few.
    """

    def __init__(self, limits: IngestConfig) -> None:
        self._limits = limits
        self._of = {"": Share(math.inf, math.inf)}

    def of(self, program: str) -> Share:
        """Return the share of a program, the same one each time."""
        share = self._of.get(program)
        if share is None:
            limits = self._limits
            share = self._of[program] = Share(
                SHARE_OF_ONE * limits.pending_messages_max, SHARE_OF_ONE * limits.pending_bytes_max
            )
        return share


class QueueTurn:
    """Says when the messages of one queue have had their turn."""

    def __init__(self) -> None:
        self._end_s: float | None = None

    def is_over(self, waiting: int, now_s: float) -> bool:
        """Return whether others are due, with one message dealt with and so many waiting behind it.

        Where none waits, others come by themselves, and the next message begins a turn. Time without
        messages is no part of one: else the first message of a burst would end it, and be committed
        without those right behind it.
        """
        if not waiting:
            self._end_s = None
        elif self._end_s is None:
            self._end_s = now_s + TURN_S
        elif now_s > self._end_s:
            self._end_s = None
            return True
        return False


class Floods:
    """Counts each program's messages without room, and the cuts of its door."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self._noted: dict[str, tuple[float | None, int]] = {}

    def refuse(self, program: str, points: int) -> None:
        """Count refused messages of a program."""
        self.refused[program] += points

    def note_cut(self, program: str) -> None:
        """Count that its door was cut."""
        self.cuts[program] += 1

    def note_due(self, program: str, now_s: float) -> int:
        """Return how many points one note is to stand for now; 0: none is due."""
        noted_s, noted = self._noted.get(program, (None, 0))
        if noted_s is not None and now_s - noted_s < NOTE_EVERY_S:
            return 0
        total = self.refused[program]
        self._noted[program] = (now_s, total)
        return total - noted

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return both counts by program."""
        return {"refused": dict(self.refused), "cut": dict(self.cuts)}
