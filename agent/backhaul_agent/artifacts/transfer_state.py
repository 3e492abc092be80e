"""One file on its way over the link, piece by piece and in order: a pure core, no I/O.

Alike in both directions: a download asks for pieces, an upload sends them, and each is answered. What
is answered out of turn is not used: after a loss everything from the first missing byte is asked for
again, which is a window at most.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from backhaul_codec.protocol.blobs import PIECE_BYTES_MAX, WINDOW_BYTES_MAX

QUEUE_S = 0.8
FLOOR_BYTES = 2 * 1024
FLOOR_S = 0.2  # of what the link was measured to carry: 5% of a round of the lanes
PIECE_BYTES_MIN = 1024
PIECES = 3  # of a window
MEASURE_S = 0.25
GROW_MAX = 2.0


@dataclass(slots=True)
class TransferWindow:
    """The window of one transfer after another in one direction of the link: so much may be under way.

    Bytes in the link's socket cannot be overtaken, so a transfer fills it with `QUEUE_S` of the link and
    no more: the window is what was answered in (shortest round trip + `QUEUE_S`), while the window was
    full. Where a lane has its own backlog under way, rounds take longer than that for the lane's sake, and
    the window shrinks to its floor: readings go first, and the artifact never stands still.
    """

    window: int = FLOOR_BYTES
    _floor: int = FLOOR_BYTES
    _base_s: float = math.inf
    _begun_s: float | None = None  # of a stretch in which the window was always full
    _answered: int = 0

    @property
    def piece(self) -> int:
        """Return how many bytes to ask for at once."""
        return max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, self.window // PIECES))

    def link_carries(self, bytes_s: float) -> None:
        """Take note of the link's measured rate."""
        self._floor = max(FLOOR_BYTES, min(WINDOW_BYTES_MAX, int(bytes_s * FLOOR_S)))
        self.window = max(self.window, self._floor)

    def answered(self, now_s: float, took_s: float, size: int, *, full: bool) -> None:
        """Take note of an answer; ``full``: there was more to send than the window let through."""
        self._base_s = min(self._base_s, took_s)
        if not full:
            self._begun_s = None
            return
        if self._begun_s is None:
            self._begun_s, self._answered = now_s, 0
            return
        self._answered += size
        span_s = now_s - self._begun_s
        if span_s < MEASURE_S or span_s < self._base_s:
            return
        wanted = self._answered / span_s * (self._base_s + QUEUE_S)
        self._begun_s, self._answered = now_s, 0
        self._set(min(wanted, self.window * GROW_MAX))

    def lost(self) -> None:
        """Take note that answers did not come: begin with less."""
        self._begun_s = None
        self._set(self.window / 2)

    def new_link(self) -> None:
        """Forget the round trip: the link that came up may be another one."""
        self._base_s, self._begun_s = math.inf, None
        self._set(self._floor)

    def _set(self, wanted: float) -> None:
        self.window = max(self._floor, min(WINDOW_BYTES_MAX, int(wanted)))


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
