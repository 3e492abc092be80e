"""The part of the tree that one person may see: exactly all below a group now, the group included. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from backhaul_codec import Value
from backhaul_codec.state.tree import Edge
from backhaul_hub.device import FLEET
from backhaul_hub.errors import HubError, RightsError
from backhaul_hub.people.identity import May, Person
from backhaul_hub.sync.tree import FleetTree


@dataclass(eq=False)
class Scope:
    """One person's part of the tree, looked at anew with every question.

    Args:
        devices: tells which devices there are.
    """

    person: Person
    tree: FleetTree
    _devices: Callable[[], Collection[str]]

    @property
    def whole(self) -> bool:
        """Tell whether it is all of the tree."""
        return self.person.group == FLEET

    @property
    def devices(self) -> list[str]:
        """Return the devices that are seen, by id."""
        return [device for device in sorted(self._devices()) if self.sees(device)]

    def sees(self, address: str) -> bool:
        """Tell whether a group, a device, or a node inside of one is seen.

        A node of a device is seen where the device is, whatever is above it inside.
        """
        group = self.person.group
        if self.whole:
            return True
        top = address.partition("/")[0]
        if not self.tree.attached(group):
            return False
        return top == group or group in self.tree.ancestors(top)

    def require(self, address: str) -> None:
        """Raise RightsError where an address is not seen, whether there is such a thing or not."""
        if not self.sees(address):
            raise RightsError(self._limit(), hint=self._gone() or f"{address} is not below it")

    def require_device(self, device: str) -> None:
        """Raise RightsError where a device is not seen, HubError where there is none."""
        self.require(device)
        if device not in self._devices():
            raise HubError(f"there is no device {device}", hint="see: backhaul-hub devices")

    def require_may(self, needed: May) -> None:
        """Raise RightsError where the person's right is less than `needed`."""
        if not self.person.may.covers(needed):
            raise RightsError(
                f"{self._limit()}, and this takes the right to {needed}",
                hint=f"made by an operator with: backhaul-hub user add --may {needed}",
            )

    def require_group(self) -> None:
        """Raise RightsError where the person's group is not in the tree any more."""
        if gone := self._gone():
            raise RightsError(self._limit(), hint=gone)

    def _limit(self) -> str:
        name, group, may = self.person
        return f"{name} may {may} below {group} only"

    def _gone(self) -> str:
        there = self.whole or self.tree.attached(self.person.group)
        return "" if there else f"{self.person.group} is not in the tree"


class Subtree:
    """The part of the tree that a scope sees. It reads as `FleetTree` does, for tree_text."""

    def __init__(self, scope: Scope) -> None:
        self._tree = scope.tree
        self._sees = scope.sees
        self.root = scope.person.group

    @property
    def nodes(self) -> list[str]:
        """Return all addresses that are seen."""
        return [address for address in self._tree.nodes if self._sees(address)]

    @property
    def edges(self) -> list[Edge]:
        """Return the edges both ends of which are seen."""
        return [edge for edge in self._tree.edges if self._both(edge)]

    @property
    def left_out(self) -> list[Edge]:
        """Return the same of those that would close a cycle."""
        return [edge for edge in self._tree.left_out if self._both(edge)]

    def parents(self, address: str) -> list[str]:
        """Return the addresses right above one that are seen as well."""
        return [each for each in self._tree.parents(address) if self._sees(each)]

    def children(self, address: str) -> list[str]:
        """Return the addresses right below one."""
        return self._tree.children(address)

    def closes(self, parent: str, address: str) -> list[str] | None:
        """Return the cycle that an edge would close: it is all below `address`, so it is seen."""
        return self._tree.closes(parent, address)

    def is_deleted(self, address: str) -> bool:
        """Tell whether a node had edges and all of them are deleted."""
        return self._tree.is_deleted(address)

    def node_type(self, parent: str, address: str) -> Value | None:
        """Return the value of an edge's `nodeType`; None where its upper end is not seen."""
        return self._tree.node_type(parent, address) if self._sees(parent) else None

    def _both(self, edge: Edge) -> bool:
        return self._sees(edge.parent) and self._sees(edge.node)
