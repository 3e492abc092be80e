"""Telemetry that is not kept, because the link's budget is short: which messages, and the account of them. Pure.

A message is thinned where it comes in, before anything is acknowledged: its program is answered
`thinned`, and it never has a seq. So the ledger and the hub lack nothing that anybody was told is kept,
and an event, `e.thinned`, tells the hub from when on, how much, and of which nodes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.contents import value_class
from backhaul_agent.commit.queues import points_in
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ledger.eviction_policy import TELEMETRY

if TYPE_CHECKING:
    from backhaul_agent.commit.contents import Content

SUBJECTS_MAX = 4096
NODES_MAX = 32  # in one event; all others count together, without a name
TOLD_EVERY_S = 900.0


class Sieve:
    """Keeps one message of ``keep_one_of`` of each subject; state, configuration and events all pass.

    ``thinned``: points that were refused since the agent started.
    """

    def __init__(self) -> None:
        self.keep_one_of = 1
        self.thinned = 0
        self._came: dict[str, int] = {}
        self._nodes: Counter[str] = Counter()  # since the last event

    def require(self, subject: str, content: Content) -> None:
        """Let a message pass, or not.

        Raises:
            RefusedError: `thinned`: this one is not kept.
        """
        if self.keep_one_of <= 1 or value_class(content) != TELEMETRY:
            return
        if subject not in self._came and len(self._came) >= SUBJECTS_MAX:
            self._came.clear()
        came = self._came.get(subject, 0)
        self._came[subject] = came + 1
        if came % self.keep_one_of == 0:
            return
        points = points_in(content)
        self.thinned += points
        node = getattr(content, "node", "")
        self._nodes[node if node in self._nodes or len(self._nodes) < NODES_MAX else ""] += points
        text = f"the link's budget is short: one message of {self.keep_one_of} is kept of {subject}"
        raise RefusedError(Code.THINNED, text)

    def set(self, keep_one_of: int) -> None:
        """Keep so few from now on."""
        if keep_one_of != self.keep_one_of:
            self.keep_one_of = keep_one_of
            self._came.clear()

    def told(self) -> dict[str, int]:
        """Return the points thinned by node since this was asked last; "" is all nodes without a name."""
        nodes, self._nodes = self._nodes, Counter()
        return dict(nodes)

    def untold(self, nodes: dict[str, int]) -> None:
        """Take back the answer of `told`: nobody was told after all."""
        self._nodes.update(nodes)


class ThinningAccount:
    """When the hub is told of thinning: before it begins or changes, now and then, and at its end."""

    def __init__(self, keep_one_of: int = 1) -> None:
        self.said = keep_one_of  # what the hub was told last, durably
        self._told_s = float("-inf")

    def due(self, wanted: int, now_s: float) -> bool:
        """Return whether an event is due; ``wanted``: how many shall come to one from now on."""
        return wanted != self.said or (wanted > 1 and now_s - self._told_s >= TOLD_EVERY_S)

    def made(self, wanted: int, now_s: float) -> None:
        """Take in that an event is durable."""
        self.said, self._told_s = wanted, now_s


def thinned_event(wanted: int, nodes: dict[str, int], reason: str) -> dict[str, Any]:
    """Return the body of `e.thinned`: how much is kept from now on, and the points thinned since the last one."""
    return {"keep_one_of": wanted, "reason": reason, "points": sum(nodes.values()), "nodes": nodes}
