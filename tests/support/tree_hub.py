"""A hub whose tree is changed, as an operator changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_hub.sync.tree_writes import TreeWrite, TreeWrites

from .hub_sync import FakeClock, Hub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_hub.sync.tree import FleetTree


class TreeHub:
    """A hub and its tree.

    Args:
        devices: those that it has.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.clock = FakeClock()
        self.hub = Hub(self.clock, devices)

    @property
    def tree(self) -> FleetTree:
        """Return the tree as it is now."""
        return self.hub.core.tree

    @property
    def writes(self) -> TreeWrites:
        """Return what plans changes of it."""
        return TreeWrites(self.tree, self.hub.core.heads)

    def do(self, change: TreeWrite) -> None:
        """Make a change, a millisecond after the last one."""
        self.clock.ns += 1_000_000
        planned = self.hub.core.plan(change.device, change.puts, "hub")
        self.hub.db.write(planned.changes)
        self.hub.core.apply(planned)
