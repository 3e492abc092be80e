"""How long the machine that leads has said nothing, as one that follows can know it. Pure.

Time counts only between two answers of the journal's leader that follow one another: while the servers choose a
new one, or are out of reach, nobody could have heard the machine that leads, and it could not have said anything. A
follower that stood still itself has heard nothing either: a gap counts for little more than the time from one
question to the next.
"""

from __future__ import annotations

from backhaul_hub.standby.entry import Entry

_GAP_S_MAX = 1.0


class LeaderPatience:
    """Judges whether to take over.

    Args:
        patience_s: so long a silence is a leader's end.
        machine: this one's name.
    """

    def __init__(self, patience_s: float, machine: str) -> None:
        self._patience_s = patience_s
        self._machine = machine
        self._last_seq = -1
        self._heard_s: float | None = None
        self._left = False
        self.silent_s = 0.0
        """For how long nothing was written, seconds of the monotonic clock."""

    def answered(self, last_seq: int, now_s: float) -> None:
        """Take in an answer of the journal's leader: its last sequence, and when it came (monotonic)."""
        if last_seq != self._last_seq:
            self.silent_s = 0.0
        elif self._heard_s is not None:
            self.silent_s += min(now_s - self._heard_s, _GAP_S_MAX)
        self._last_seq, self._heard_s = last_seq, now_s

    def unanswered(self) -> None:
        """Take in that no leader of the journal answered."""
        self._heard_s = None

    def read(self, entry: Entry) -> None:
        """Take in an entry."""
        self._left = entry.kind == "leave" and entry.to in ("", self._machine)

    @property
    def over(self) -> bool:
        """Whether nobody leads any more."""
        return self._left or self.silent_s >= self._patience_s
