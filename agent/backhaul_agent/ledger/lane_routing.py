"""Which lane a message goes to: a pure core, no I/O.

Whoever writes a message says `live` or `bulk`. Where the operator gave a node lanes of its own, all
points about it, also those of edges down to it, are moved to its lane on their way into the ledger.
Events, results, and all nodes that were not named stay in the shared lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backhaul_codec.kinds import LIVE, SHARED_LANES, Lane
from backhaul_codec.subjects import node_lane, node_lane_subject, node_of_lane, parse_leaf

if TYPE_CHECKING:
    from backhaul_agent.ledger.rows import Outgoing


class Lanes:
    """The lanes of an agent whose ``nodes`` have their own."""

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self._of_node = {node: node_lane(node) for node in nodes}

    @property
    def own(self) -> tuple[Lane, ...]:
        """Return the lanes that belong to one node each."""
        return tuple(self._of_node.values())

    @property
    def names(self) -> tuple[Lane, ...]:
        """Return all lanes, those that are shared first."""
        return (*SHARED_LANES, *self.own)

    def has_own(self, node: str) -> bool:
        """Tell whether a node has a lane of its own."""
        return node in self._of_node

    def of_points(self, node: str) -> Lane:
        """Return the lane in which a node's state and configuration go."""
        return self._of_node.get(node, LIVE)

    def place(self, message: Outgoing) -> Outgoing:
        """Return a message as it goes into its lane.

        One that names a node's lane already is an event, said to whoever reads that lane.
        """
        lane = message.lane
        if self._of_node and lane in SHARED_LANES:
            lane = self._of_node.get(parse_leaf(message.subject).node or "", lane)
        node = node_of_lane(lane)
        if node is None:
            return message
        return message._replace(lane=lane, subject=node_lane_subject(node, message.subject))
