"""Whether the leaf server has stopped to dial the hub, and may be restarted: a pure core, no I/O.

nats-server has been seen to dial no more after a link over LTE had broken, for hours, until somebody
restarted it (issue 7615). The agent knows how long the link is down; `backhaul-agent leaf-check`, which
may reach the hub and read the server's log, finds out why, and says so to the agent. The agent keeps
count: a restart costs local programs their connections, and must not come again and again for nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

WAIT_S_MAX = 3600.0
SHOWN_S = 3600.0  # after it was found: the hub hears of it only once the link is up again
_DIALS = re.compile(r"leafnode|\blid(?:_ws)?:", re.IGNORECASE)


class Redial:
    """Knows for how long the link is down that should be up, and when the leaf server may be restarted.

    Args:
        after_s: how long the link must be down; twice as long after each restart, an hour at most. 0: never.
    """

    def __init__(self, after_s: float) -> None:
        self.restarts = 0  # in a row, without a link between
        self._after_s = after_s
        self._down_s: float | None = None  # since when, monotonic
        self._found_s = -math.inf
        self._reason = ""

    def note(self, up: bool | None, *, wanted: bool, now_s: float) -> None:
        """Take in a look at the link; ``up`` is None while nobody can say, as while the server starts."""
        if up:
            self.restarts = 0
        if up is not False or not wanted:
            self._down_s = None
        elif self._down_s is None:
            self._down_s = now_s

    def suspect(self, now_s: float) -> bool:
        """Return whether the link is down for so long that somebody should look why."""
        wait_s = min(WAIT_S_MAX, self._after_s * 2**self.restarts)
        down_s = self._down_s
        return self._after_s > 0 and down_s is not None and now_s - down_s >= wait_s

    def found(self, reason: str, now_s: float) -> bool:
        """Take in that the server does not dial; return whether it may be restarted now."""
        if not self.suspect(now_s):
            return False
        self._found_s, self._reason = now_s, reason
        self.restarts += 1
        self._down_s = None  # counted anew, also if no new server comes
        return True

    def status(self, now_s: float) -> dict[str, Any]:
        """Return the part of the leaf's status about its dialing."""
        down_s = self._down_s
        return {
            "redial": {
                "suspect": self.suspect(now_s),
                "down_s": None if down_s is None else round(now_s - down_s, 1),
                "restarts": self.restarts,
                "not_dialing": self._reason if now_s - self._found_s < SHOWN_S else "",
            }
        }


@dataclass(frozen=True, slots=True)
class DialLook:
    """A look at a leaf server for some seconds.

    ``answered``: the hub's address that answered at the beginning and at the end, "" for none. ``logged``:
    what the server's log has got meanwhile; None: it cannot be read. ``still_down``: at the end.
    """

    answered: str
    logged: str | None
    still_down: bool
    looked_s: float


def does_not_dial(look: DialLook) -> tuple[bool, str]:
    """Return whether the server has stopped to dial, and why or why not, in words.

    One that dials does so every second at least, and logs what comes of it.
    """
    if not look.still_down:
        return False, "the leaf server has its link to the hub"
    if not look.answered:
        return False, "the hub does not answer on its port: the leaf server goes on dialing"
    if look.logged is None:
        return False, "the leaf server's log cannot be read, so nobody can tell whether it dials"
    if _DIALS.search(look.logged):
        return False, "the leaf server dials, and gets no link: backhaul-agent status tries why"
    return (
        True,
        f"{look.answered} answers, and the leaf server has not dialled in {look.looked_s:g} s",
    )
