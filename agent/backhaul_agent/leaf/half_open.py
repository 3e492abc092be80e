"""Whether the link is half-open while there is something to say: a pure core, no I/O, no clock.

The servers' pings notice a half-open link after 28 to 56 s: often would cost an idle link too much. Where something
was said over the link, the hub says something within 20 s, a watermark at the latest. Where nothing comes, the agent
asks the hub for the time, and where still nothing comes, it has its server dial anew.

The agent looks once a second, and its looks are counted, not seconds: one that could not run was not waiting either.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backhaul_agent.leaf.link_state import LinkTraffic

ASK_LOOKS = 23
"""The hub tells watermarks each 20 s, and a slow link takes two more."""
CUT_LOOKS = 29


class HalfOpenStep(Enum):
    """The next deed of the shell."""

    REST = "rest"
    ASK = "ask"
    """Have the hub asked something that it answers at once."""
    CUT = "cut"
    """Have the leaf server drop the link, and dial."""


class HalfOpen:
    """Knows for how many looks nothing has come over the link that is up, though something went.

    Args:
        ask_looks: after so many the hub is asked.
        cut_looks: after so many the link is given up.
    """

    def __init__(self, ask_looks: int = ASK_LOOKS, cut_looks: int = CUT_LOOKS) -> None:
        self._ask_looks, self._cut_looks = ask_looks, cut_looks
        self.cuts = 0
        """How often the link was taken for half-open."""
        self._counts: tuple[str, int, int] | None = None
        self._waits = False
        """Whether something went after all that came."""
        self._looks = 0
        self._heard = False
        """Whether anything came over this link: a hub that has no control plane is not dialled again and again."""

    def begin_anew(self) -> None:
        """Take in that the link is gone, or that nobody knows."""
        self._counts, self._waits, self._looks, self._heard = None, False, 0, False

    def look(self, traffic: LinkTraffic) -> HalfOpenStep:
        """Take in the link's counts, while it is up; return the next step."""
        before = self._counts
        server, sent, received = traffic.server, traffic.sent_messages, traffic.received_messages
        self._counts = server, sent, received
        if before is None or before[0] != server:
            self._waits, self._looks = False, 0
            return HalfOpenStep.REST
        if received != before[2]:
            self._heard, self._waits, self._looks = True, False, 0
            return HalfOpenStep.REST
        self._waits = self._waits or sent != before[1]
        if not (self._waits and self._heard):
            return HalfOpenStep.REST
        self._looks += 1
        if self._looks == self._ask_looks:
            return HalfOpenStep.ASK
        if self._looks == self._cut_looks:
            self.cuts += 1
            return HalfOpenStep.CUT
        return HalfOpenStep.REST
