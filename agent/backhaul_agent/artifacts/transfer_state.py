"""One file on its way over the link, piece by piece and in order: a pure core, no I/O.

Alike in both directions: a download asks for pieces, an upload sends them, and each is answered. What
is answered out of turn is not used: after a loss everything from the first missing byte is asked for
again, which is a window at most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from backhaul_agent.artifacts.rate_limit import TransferWindow

# An answer is given up after four of the rounds before, within these. The longer one is more than a
# round behind a lane's backlog.
ANSWER_S_MIN, ANSWER_S_MAX, ROUNDS = 5.0, 15.0, 4.0


class ByteSpan(NamedTuple):
    """Bytes of the file."""

    offset: int
    length: int


class _UnderWay(NamedTuple):
    end: int
    length: int
    asked_s: float
    full: bool


@dataclass(slots=True)
class TransferState:
    """A file of ``size`` bytes of which the first ``done`` have arrived."""

    size: int
    done: int
    pace: TransferWindow
    asked_bytes: int = 0  # all that was ever asked for, repeats included
    _asked: int = 0
    _round_s: float = ANSWER_S_MAX
    _goes_back: bool = False  # nothing has arrived in turn since the last loss
    _under_way: deque[_UnderWay] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._asked = self.done

    def next(self, now_s: float) -> ByteSpan | None:
        """Return the piece to ask for (or send) now; None while enough is under way."""
        left = self.size - self._asked
        length = min(left, self.pace.piece)
        if not length or (self._under_way and not self._fits(length)):
            return None
        span = ByteSpan(self._asked, length)
        self._asked += length
        self.asked_bytes += length
        full = left > length and not self._fits(self.pace.piece)
        self._under_way.append(_UnderWay(self._asked, length, now_s, full))
        return span

    def _fits(self, length: int) -> bool:
        return self._asked - self.done + length <= self.pace.window

    def arrived(self, now_s: float, offset: int, length: int) -> bool:
        """Take in a piece; return whether it is the next one, to be kept."""
        if offset != self.done or not 0 < length <= self.size - offset:
            # One before it was lost on the way. What else was under way then comes out of turn too.
            if offset > self.done and not self._goes_back:
                self.lost()
            return False
        self._moved(now_s, offset + length)
        return True

    def held(self, now_s: float, offset: int) -> bool:
        """Take in how much the other end holds; return whether that moved on.

        It may also hold less than it said, where it was started again.
        """
        if offset > self._asked or offset < self.done:
            self.done = self._asked = min(offset, self.size)
            self._under_way.clear()
            return False
        if offset == self.done:
            return False
        self._moved(now_s, offset)
        return True

    def overdue(self, now_s: float) -> bool:
        """Return whether an answer should have come by now."""
        limit_s = min(ANSWER_S_MAX, max(ANSWER_S_MIN, ROUNDS * self._round_s))
        return bool(self._under_way) and now_s - self._under_way[0].asked_s >= limit_s

    def lost(self) -> None:
        """Ask again from the first byte that has not arrived."""
        self._asked = self.done
        self._goes_back = True
        self._under_way.clear()
        self.pace.lost()

    def _moved(self, now_s: float, done: int) -> None:
        gained, self.done = done - self.done, done
        self._goes_back = False
        answered = None
        while self._under_way and self._under_way[0].end <= done:
            answered = self._under_way.popleft()
        if answered is not None:
            self._round_s = now_s - answered.asked_s
            self.pace.answered(now_s, self._round_s, gained, full=answered.full)
