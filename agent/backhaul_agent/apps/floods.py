"""What each program floods the agent with, and how much of the agent's room one may take. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.errors import Code, RefusedError

if TYPE_CHECKING:
    from backhaul_agent.config import IngestConfig

# Of what may wait for the disk. A commit begins at half, so one program alone gets on as fast.
_SHARE_OF_ONE = 0.75
# Notes on refused messages that nobody waits for an answer to, of one program.
NOTE_EVERY_S = 0.01
TOO_MUCH = RefusedError(Code.BUSY, "more arrives than the agent takes: try again shortly")


class Held(NamedTuple):
    """What a program has waiting for the disk."""

    messages: int = 0
    size: int = 0


class Shares:
    """Keeps a program from taking all of the room; messages without a program's name are not counted."""

    def __init__(self, limits: IngestConfig) -> None:
        self._messages_max = _SHARE_OF_ONE * limits.pending_messages_max
        self._bytes_max = _SHARE_OF_ONE * limits.pending_bytes_max
        self._held: dict[str, Held] = {}

    def require(self, program: str, size: int) -> None:
        """Let one more of it in. Raises: RefusedError: its share is taken."""
        held = self._held.get(program)
        if held and (held.messages >= self._messages_max or held.size + size > self._bytes_max):
            raise TOO_MUCH

    def take(self, program: str, size: int) -> None:
        """Note that a message of it waits."""
        if program:
            held = self._held.get(program, Held())
            self._held[program] = Held(held.messages + 1, held.size + size)

    def give(self, program: str, size: int) -> None:
        """Note that one waits no more."""
        held = self._held.pop(program, Held())
        if held.messages > 1:
            self._held[program] = Held(held.messages - 1, held.size - size)


class Floods:
    """Counts, for each program, what there was no room for and how often its door was cut."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self._noted: dict[str, tuple[float | None, int]] = {}

    def refuse(self, program: str, points: int) -> None:
        """Count what was refused of it."""
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
