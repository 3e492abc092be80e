"""Changing the tree: which edges to write for a node to be made, moved, mirrored, deleted. Pure.

Each returns what is to be put, a list for each write. Nothing here writes, and nothing is put that
would close a cycle; what the vehicle does meanwhile may still close one, then the newest edge is
left out on both ends (codec's state/tree.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backhaul_codec import Value
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.state.tree import NODE_TYPE
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.device import FLEET
from backhaul_hub.errors import WriteRefusedError
from backhaul_hub.sync.heads import FleetHeads
from backhaul_hub.sync.tree import FleetTree, name_in
from backhaul_hub.sync.writes import Put

GROUP_TYPE = "group"
DEVICE_TYPE = "device"
INNER_TYPE = "node"  # as on the vehicle


class TreeWrite(NamedTuple):
    """Points to put into devices' heads; FLEET's are the hub's own."""

    device: str
    puts: list[list[Put]]


class TreeWrites:
    """Plans changes of one tree."""

    def __init__(self, tree: FleetTree, heads: FleetHeads) -> None:
        self._tree = tree
        self._heads = heads

    def create(
        self,
        address: str,
        node_type: Value | None = None,
        under: str | None = None,
        first: Sequence[tuple[str, str, Value]] = (),
    ) -> TreeWrite:
        """Make a node, or a group, with its edge and first points (type, key, value) at once.

        Raises:
            WriteRefusedError: it is there, or was deleted; or has no place in the tree.
        """
        device, node = self._tree.split(address)
        if not node:
            raise WriteRefusedError(f"{address!r} names no node")
        if device == FLEET:
            self._require_free_id(node)
        else:
            self._require(device)
        if self._tree.exists(address):
            raise WriteRefusedError(f"{address} is there already", hint="mirror or move it")
        if self._tree.is_deleted(address):
            raise WriteRefusedError(f"{address} was deleted", hint="undelete it")
        parent = self._parent(address, under if under is not None else device)
        if node_type is None:
            node_type = GROUP_TYPE if device == FLEET else INNER_TYPE
        puts = [self._put(parent, address, node_type)]
        puts += [Put(HeadKey("", node, type_, key), value) for type_, key, value in first]
        return TreeWrite(device, [puts])

    def mirror(self, address: str, under: str) -> TreeWrite:
        """Hang a node under one more parent. Raises: WriteRefusedError."""
        parent = self._new_parent(address, under)
        puts = [[self._put(parent, address, self._type(address))]]
        # What hung under the root without an edge would leave it with its first one.
        puts += [[put] for put in self._written_down(address)]
        return TreeWrite(self._tree.split(address)[0], puts)

    def move(self, address: str, to: str, source: str | None = None) -> TreeWrite:
        """Hang a node under another parent instead of `source`. Raises: WriteRefusedError."""
        parent = self._new_parent(address, to)
        living = self._living(address)
        if source is None and len(living) > 1:
            raise WriteRefusedError(
                f"{address} hangs under {' and '.join(living)}", hint="say which it leaves: --from"
            )
        leaves = living if source is None else [self._known_parent(address, source)]
        # The new edge first: for a moment it hangs under both, and never under none.
        puts = [self._put(parent, address, self._type(address))]
        puts += [self._cut(each, address) for each in leaves if each in living]
        return TreeWrite(self._tree.split(address)[0], [[put] for put in puts])

    def delete(self, address: str, under: str | None = None) -> TreeWrite:
        """Delete a node: under one parent, or everywhere. Raises: WriteRefusedError."""
        self._require(address)
        device, node = self._tree.split(address)
        living = self._living(address)
        if under is not None:
            living = [each for each in living if each == self._known_parent(address, under)]
        if not living and device != FLEET:
            # It hangs under its device without an edge: it gets one, deleted.
            key = HeadKey(device, node, NODE_TYPE)
            return TreeWrite(device, [[Put(key, self._type(address), deleted=True)]])
        if not living:
            raise WriteRefusedError(f"{address} hangs under no group")
        return TreeWrite(device, [[self._cut(each, address)] for each in living])

    def undelete(self, address: str, under: str | None = None) -> TreeWrite:
        """Put back the edge to one parent, or those that were deleted last. Raises:
        WriteRefusedError.
        """  # noqa: D205
        deleted = self._deleted(address)
        if under is not None:
            parents = [parent for parent in deleted if parent == under]
        else:
            parents = [] if self._living(address) else _last_cut(deleted)
        if not parents:
            where = f" under {under}" if under is not None else ""
            raise WriteRefusedError(f"{address} is not deleted{where}")
        puts = []
        for parent in sorted(parents):
            self._require_no_cycle(parent, address)
            node_type = self._tree.node_type(parent, address)
            puts.append(
                [self._put(parent, address, INNER_TYPE if node_type is None else node_type)]
            )
        return TreeWrite(self._tree.split(address)[0], puts)

    def _require_free_id(self, group: str) -> None:
        if not DEVICE_ID.match(group):
            raise WriteRefusedError(
                f"{group!r} is no id of a group",
                hint="letters, digits, _ and -, at most 63, and a letter or digit first; a node of"
                " a device is <device>/<node>",
            )

    def _require(self, address: str) -> None:
        if not self._tree.exists(address):
            raise WriteRefusedError(f"there is no {address}", hint="see: backhaul-hub tree")
        if address == FLEET:
            raise WriteRefusedError(f"{FLEET} is the root above all")

    def _new_parent(self, address: str, under: str) -> str:
        self._require(address)
        parent = self._parent(address, under)
        if parent in self._tree.parents(address):
            raise WriteRefusedError(f"{address} hangs under {under} already")
        return parent

    def _parent(self, address: str, under: str) -> str:
        """Return the parent of a new edge, checked."""
        device, _ = self._tree.split(address)
        if under != FLEET and not self._tree.exists(under):
            raise WriteRefusedError(f"there is no {under}", hint="see: backhaul-hub tree")
        inside = self._tree.below_device(under)[0]
        if inside != device:
            raise WriteRefusedError(
                f"no edge leads from {under} to {address}: edges stay inside of their device, and"
                " devices and groups hang under groups"
            )
        self._require_no_cycle(under, address)
        return under

    def _known_parent(self, address: str, under: str) -> str:
        if under not in self._tree.parents(address):
            raise WriteRefusedError(f"{address} does not hang under {under}")
        return under

    def _require_no_cycle(self, parent: str, address: str) -> None:
        cycle = self._tree.closes(parent, address)
        if cycle is not None:
            raise WriteRefusedError(f"this would close a cycle: {' > '.join(cycle)}")

    def _put(self, parent: str, address: str, node_type: Value) -> Put:
        device, node = self._tree.split(address)
        return Put(HeadKey(name_in(device, parent), node, NODE_TYPE), node_type)

    def _cut(self, parent: str, address: str) -> Put:
        device, node = self._tree.split(address)
        return Put(HeadKey(name_in(device, parent), node, NODE_TYPE), None, deleted=True)

    def _type(self, address: str) -> Value:
        """Return the type that a node has under one of its parents."""
        for parent in self._tree.parents(address):
            node_type = self._tree.node_type(parent, address)
            if node_type is not None:
                return node_type
        return DEVICE_TYPE if self._tree.split(address)[0] == FLEET else INNER_TYPE

    def _edges(self, address: str) -> dict[str, tuple[bool, int]]:
        """Return the parents to which there ever was an edge: is it deleted, and its stamp."""
        device, node = self._tree.split(address)
        found: dict[str, tuple[bool, int]] = {}
        for key, head in self._heads.of(device).heads.of_node(node).items():
            if key.parent and (key.type, key.key) == (NODE_TYPE, ""):
                parent = key.parent if device in (FLEET, key.parent) else f"{device}/{key.parent}"
                found[parent] = head.deleted, head.time
        return found

    def _living(self, address: str) -> list[str]:
        return sorted(parent for parent, (gone, _) in self._edges(address).items() if not gone)

    def _deleted(self, address: str) -> dict[str, int]:
        return {parent: time for parent, (gone, time) in self._edges(address).items() if gone}

    def _written_down(self, address: str) -> list[Put]:
        """Return the edge from its device for a node that hangs there without one."""
        device, _ = self._tree.split(address)
        if self._edges(address) or device == FLEET:
            return []
        return [self._put(device, address, self._type(address))]


def _last_cut(deleted: dict[str, int]) -> list[str]:
    """Return the parents whose edges were deleted together, last of all: stamps in a row."""
    found: list[str] = []
    for parent in sorted(deleted, key=lambda parent: -deleted[parent]):
        if found and deleted[found[-1]] - deleted[parent] > 1:
            break
        found.append(parent)
    return found
