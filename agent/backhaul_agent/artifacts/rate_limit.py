"""How much of an artifact may be under way on the link: a pure core, no I/O.

What is in the link's socket cannot be overtaken, so a transfer fills it with `QUEUE_S` of the link and
no more: the window is what was answered in (shortest round trip + `QUEUE_S`), while the window was
full. Where a lane has its own backlog under way, rounds take longer than that for the lane's sake, and
the window shrinks to its floor: readings go first, and the artifact never stands still.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """The window of one transfer after another in one direction of the link."""

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
