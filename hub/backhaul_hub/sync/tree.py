"""The hub's tree: groups above devices, and the nodes inside of them. Pure, cached.

A thing has an address: `<group>` and `<device>` are their ids, a node inside of a device is
`<device>/<node>`; the root above all is `fleet`. Edges inside of a device are its own, in its
heads; edges from groups to groups and devices are heads of FLEET, which stay at the hub.

A device that no living group leads to hangs under the root: it is never out of sight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from backhaul_codec import Value
from backhaul_codec.state.tree import Edge, Topology
from backhaul_codec.subjects import encode_token
from backhaul_hub.device import FLEET
from backhaul_hub.sync.heads import FleetHeads, HeadChange


def address_of(device: str, node: str) -> str:
    """Return the address of a device's node; of a group, where the device is FLEET."""
    if device == FLEET:
        return node
    return device if node == device else f"{device}/{node}"


def name_in(device: str, address: str) -> str:
    """Return the name that an address of a device has inside; in FLEET it is the address."""
    return address if address == device or device == FLEET else address.partition("/")[2]


class FleetTree:
    """One tree over all devices, by addresses. It reads as `Topology` does.

    Args:
        heads: where the edges come from.
        devices: tells which ids are devices.
    """

    root = FLEET

    def __init__(self, heads: FleetHeads, devices: Callable[[], Collection[str]]) -> None:
        self._heads = heads
        self._devices = devices
        self._inner: dict[str, Topology] = {}
        self._tokens: dict[str, dict[str, tuple[str, ...]]] = {}

    def apply(self, change: HeadChange) -> bool:
        """Take in a head that changed, already merged; return whether the tree is another one."""
        topology = self._inner.get(change.device)
        if topology is None:
            self.topology(change.device)  # reads all heads, this one too
            changed = True
        else:
            changed = topology.apply(change.key, change.head)
        if changed and change.device == FLEET:
            self._tokens.clear()
        elif changed:
            self._tokens.pop(change.device, None)
        return changed

    def forget(self) -> None:
        """Take in that there may be other devices now."""
        self._tokens.clear()

    def topology(self, device: str) -> Topology:
        """Return the tree inside of a device; for FLEET, the one of groups and devices."""
        topology = self._inner.get(device)
        if topology is None:
            topology = self._inner[device] = Topology(device, self._heads.of(device).heads)
        return topology

    def split(self, address: str) -> tuple[str, str]:
        """Return the device whose edges lead to an address (FLEET for groups and devices), and
        the node's name among them.
        """  # noqa: D205
        device, slash, node = address.partition("/")
        return (device, node) if slash else (FLEET, address)

    def below_device(self, address: str) -> tuple[str, str]:
        """Return where the edges down from an address are: as `split`, but a device's own inside."""
        device, node = self.split(address)
        return (node, node) if device == FLEET and node in self._devices() else (device, node)

    def ancestor_tokens(self, device: str, node: str) -> tuple[str, ...]:
        """Return the address of a device's node and those of all above it, as subject tokens.

        Without groups that hang nowhere: whose part of the tree was deleted hears nothing more.
        """
        tokens = self._tokens.get(device)
        if tokens is None:
            tokens = self._tokens[device] = {}
        found = tokens.get(node)
        if found is None:
            address = address_of(device, node)
            some = (address, *sorted(self.ancestors(address)))
            found = tokens[node] = tuple(
                encode_token(each) for each in some if "/" in each or self.attached(each)
            )
        return found

    def attached(self, address: str) -> bool:
        """Tell whether a device is known, or a way leads from the root down to a group."""
        if address == FLEET or address in self._devices():
            return True
        return FLEET in self.topology(FLEET).ancestors(address)

    def ancestors(self, address: str) -> set[str]:
        """Return all addresses above one, through all parents; none of a deleted node."""
        device, node = self.split(address)
        if device != FLEET:
            inside = self.topology(device)
            within = inside.ancestors(node)
            if not within and not inside.is_deleted(node):
                within = frozenset([device])  # without a head, so without an edge: telemetry alone
            above = {address_of(device, each) for each in within}
            return above | (self.ancestors(device) if device in within else set())
        if address == FLEET:
            return set()
        above = set(self.topology(FLEET).ancestors(address))
        return above | {FLEET} if address in self._devices() else above

    def children(self, address: str) -> list[str]:
        """Return the addresses right below one, by name."""
        device, node = self.below_device(address)
        below = {address_of(device, each) for each in self.topology(device).children(node)}
        if address == FLEET:
            below |= {each for each in self._devices() if self._hangs_free(each)}
        return sorted(below)

    def parents(self, address: str) -> list[str]:
        """Return the addresses right above one, by name; none: the root, or a deleted node."""
        device, node = self.split(address)
        topology = self.topology(device)
        found = {address_of(device, each) for each in topology.parents(node)}
        if device == FLEET and node in self._devices() and self._hangs_free(node):
            found.add(FLEET)
        return sorted(found)

    def closes(self, parent: str, address: str) -> list[str] | None:
        """Return the cycle that an edge would close, None if none. Both ends are in one device."""
        device, node = self.split(address)
        cycle = self.topology(device).closes(name_in(device, parent), node)
        return None if cycle is None else [address_of(device, each) for each in cycle]

    def node_type(self, parent: str, address: str) -> Value | None:
        """Return the value of an edge's `nodeType`, None if there never was such an edge."""
        device, node = self.split(address)
        return self.topology(device).node_type(name_in(device, parent), node)

    @property
    def left_out(self) -> list[Edge]:
        """Return the edges that live but would close a cycle."""
        return sorted(
            Edge(address_of(device, edge.parent), address_of(device, edge.node))
            for device, topology in self._topologies()
            for edge in topology.left_out
        )

    @property
    def edges(self) -> list[Edge]:
        """Return the edges that the tree is made of, those without a point of their own not."""
        return sorted(
            Edge(address_of(device, edge.parent), address_of(device, edge.node))
            for device, topology in self._topologies()
            for edge in topology.edges
        )

    @property
    def nodes(self) -> list[str]:
        """Return all addresses that were ever spoken of, by name, deleted ones too."""
        found = {
            address_of(device, node)
            for device, topology in self._topologies()
            for node in topology.nodes
        }
        return sorted(found | set(self._devices()))

    def is_deleted(self, address: str) -> bool:
        """Tell whether a node or group had edges and all of them are deleted; never a device."""
        device, node = self.split(address)
        return address not in self._devices() and self.topology(device).is_deleted(node)

    def exists(self, address: str) -> bool:
        """Tell whether there is a device, group or node of that address, and it is not deleted."""
        device, node = self.split(address)
        if device != FLEET and device not in self._devices():
            return False
        known = node in self.topology(device).nodes or address in self._devices()
        return known and not self.is_deleted(address)

    def _hangs_free(self, device: str) -> bool:
        return FLEET not in self.topology(FLEET).ancestors(device)

    def _topologies(self) -> Iterator[tuple[str, Topology]]:
        for device in (FLEET, *self._devices()):
            yield device, self.topology(device)
