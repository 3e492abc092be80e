"""When the vehicle says how far each lane was: a pure core, no I/O.

A mark (event `e.mark`) says: all that was acknowledged before this time stands in seqs up to these.
With it the hub knows of what is missing at a lane's end, and can judge an hour. So it is committed
together with everything that was still staged: at the start, on each full hour, when the link comes
up, when the hub's watermark has gone down, and at the stop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.ledger.system_events import event

if TYPE_CHECKING:
    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.ledger.rows import Outgoing
    from backhaul_runtime.clock import Clock

HOUR_NS = 3600 * 1_000_000_000
# A link that comes and goes must not cost a frame cut short and a mark each time, nor a hub that loses
# again and again.
REST_S_MIN = 30.0
_RESTING = ("link", "watermark")
LOOK_S = 60.0  # the wall clock may jump; it is looked at this often at least


class Marks(CommitParticipant):
    """Says when a mark is due, and why. Times are those of the injected clock."""

    def __init__(self, clock: Clock) -> None:
        self.written = 0
        self._clock = clock
        self._why = "start"
        self._hour: int | None = None
        self._marked_s: float | None = None

    def link_up(self) -> None:
        """Note that the link came up."""
        self._why = self._why or "link"

    def watermark_fell(self) -> None:
        """Note that the hub has lost something: what it lost at a lane's end it cannot know of."""
        self._why = self._why or "watermark"

    def stop(self) -> None:
        """Note that the agent stops: the mark of the last commit."""
        self._why = "stop"

    def due(self) -> str:
        """Return why a mark is due now, empty where none is.

        None is while the time is not known: the mark's own time would be wrong.
        """
        if not getattr(self._clock, "settled", True):
            return ""
        if self._why in _RESTING and not self._rested():
            return self._new_hour()
        return self._why or self._new_hour()

    def due_s(self) -> float | None:
        """Return when a mark is due, or may be."""
        return AT_ONCE_S if self.due() else self.next_s()

    def contribute(self, draft: Draft) -> None:
        """Add the mark that is due, and have everything framed with it."""
        if draft.stopping:
            self.stop()
        if why := self.due():
            draft.flush = True
            draft.changes.mark = partial(_mark, why, draft.changes.time_ns, draft.boot)

    def committed(self, draft: Draft) -> None:
        """Take in that the mark is durable."""
        if draft.changes.mark is not None:
            self.marked(draft.changes.time_ns)

    def next_s(self) -> float:
        """Return when to ask `due` again at the latest, on the monotonic clock."""
        now_s = self._clock.monotonic_s()
        wait_s = min(LOOK_S, (HOUR_NS - self._clock.now_ns() % HOUR_NS) / 1e9 + 0.001)
        if self._why in _RESTING and self._marked_s is not None:
            wait_s = min(wait_s, max(0.0, self._marked_s + REST_S_MIN - now_s))
        return now_s + wait_s

    def marked(self, time_ns: int) -> None:
        """Note that a mark of this time is durable; an hour may have begun while it was written."""
        self.written += 1
        self._why = ""
        self._hour = time_ns // HOUR_NS
        self._marked_s = self._clock.monotonic_s()

    def _rested(self) -> bool:
        return self._marked_s is None or self._clock.monotonic_s() >= self._marked_s + REST_S_MIN

    def _new_hour(self) -> str:
        if self._hour is None or self._clock.now_ns() // HOUR_NS == self._hour:
            return ""
        return "hour"


def mark_body(
    epoch: int, last_seqs: dict[str, int], hashes: dict[str, str], why: str
) -> dict[str, Any]:
    """Return the JSON of a mark; ``last_seqs`` names every lane, the mark itself counted in.

    ``hashes``: of the messages at those seqs, in hex, but for the mark's own.
    """
    return {"epoch": epoch, "lanes": last_seqs, "chain": hashes, "why": why}


def _mark(
    why: str, time_ns: int, boot: int, epoch: int, last_seqs: dict[str, int], hashes: dict[str, str]
) -> Outgoing:
    return event("mark", mark_body(epoch, last_seqs, hashes, why), time_ns)._replace(boot=boot)
