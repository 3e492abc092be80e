"""The tree of a device's nodes, from the heads of its edges: the same tree from the same heads.

An edge exists when its `nodeType` head exists and has an even tombstone. A node may have several
parents, but no node is below itself. Each end refuses a write that would close a cycle (`closes`);
still two ends, apart, can each make a legal move and close one together. Then the newest edge by
(time, origin, value) of those that close it is left out on both ends, and reported (`left_out`):
edges come in one by one, the oldest first, and one that closes a cycle with those before stays out.

A node that never had an edge hangs under the root, as does one whose living edges are all left
out. A node whose edges are all deleted is deleted: it hangs nowhere, nor does what is below it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from backhaul_codec.points import Value
    from backhaul_codec.state.merge import Head, HeadKey

NODE_TYPE = "nodeType"


class Edge(NamedTuple):
    """Name an edge by its upper and lower end."""

    parent: str
    node: str


class Topology:
    """Hold the tree. Feed it every head of the device, then every head that changes.

    Args:
        root: the device's id.
    """

    def __init__(self, root: str, heads: Iterable[tuple[HeadKey, Head]] = ()) -> None:
        self.root = root
        self._heads: dict[Edge, Head] = {}  # of all edges, deleted ones too
        self._nodes = {root}
        self._known_up: dict[str, set[str]] = {}  # node to the parents of all its edges
        self._up: dict[str, set[str]] = {}  # node to parents, and parent to nodes: of edges that
        self._down: dict[str, set[str]] = {}  # live and are not left out
        self._free: set[str] = set()  # what hangs under the root without an edge
        self._left_out: set[Edge] = set()
        self._ancestors: dict[str, frozenset[str]] = {}
        for key, head in heads:
            self._note(key, head)
        self._rebuild()

    def apply(self, key: HeadKey, head: Head) -> bool:
        """Take in a head that is new or changed; return whether the tree is another one now.

        Costs nothing to speak of where `key` is of no edge, little where no cycle is about, and
        a few ms for each thousand edges where one is.
        """
        known = len(self._nodes)
        before = self._heads.get(Edge(key.parent, key.node))
        self._note(key, head)
        grown = len(self._nodes) > known
        if _is_edge(key) and head != before:
            changed = self._change(Edge(key.parent, key.node), before, head)
        else:
            changed = False
        if grown:
            self._settle(key.node)
            if key.parent:
                self._settle(key.parent)
        if grown or changed:
            self._ancestors.clear()
        return grown or changed

    def children(self, node: str) -> list[str]:
        """Return the nodes right below a node, by name."""
        below = self._down.get(node, set())
        return sorted(below | self._free if node == self.root else below)

    def parents(self, node: str) -> list[str]:
        """Return the nodes right above a node, by name; none: the root, or a deleted node."""
        return [self.root] if node in self._free else sorted(self._up.get(node, ()))

    def ancestors(self, node: str) -> frozenset[str]:
        """Return all nodes above a node, through all its parents."""
        found = self._ancestors.get(node)
        if found is None:
            above: set[str] = set()
            todo = self.parents(node)
            while todo:
                one = todo.pop()
                if one not in above:
                    above.add(one)
                    todo += self.parents(one)
            found = self._ancestors[node] = frozenset(above)
        return found

    def paths(self, node: str) -> Iterator[list[str]]:
        """Yield each way from the root down to a node, both ends included.

        As many as there are, which doubles with each diamond of edges: take what you show.
        """
        todo = deque([[node]])
        while todo:
            path = todo.popleft()
            if path[0] == self.root:
                yield path
            todo.extend([[parent, *path] for parent in self.parents(path[0])])

    def closes(self, parent: str, node: str) -> list[str] | None:
        """Return the cycle that an edge would close: parent, node, ..., parent; None if none.

        For who writes an edge, or puts a deleted one back: refuse it, and show the path.
        """
        below = self._way_down(node, parent)
        if below is None and node == self.root:  # everything hangs under it, or once did
            below = [node, parent]
        return None if below is None else [parent, *below]

    @property
    def left_out(self) -> list[Edge]:
        """Return the edges that live but would close a cycle: to be shown to people."""
        return sorted(self._left_out)

    @property
    def edges(self) -> list[Edge]:
        """Return the edges that the tree is made of."""
        return sorted(Edge(parent, node) for node, up in self._up.items() for parent in up)

    @property
    def nodes(self) -> list[str]:
        """Return all nodes that were ever spoken of, by name, deleted ones too."""
        return sorted(self._nodes)

    def is_deleted(self, node: str) -> bool:
        """Tell whether a node had edges and all of them are deleted."""
        if node == self.root or node not in self._known_up:
            return False
        return not any(self._lives(Edge(parent, node)) for parent in self._known_up[node])

    def node_type(self, parent: str, node: str) -> Value | None:
        """Return the value of an edge's `nodeType`, None if there never was such an edge."""
        head = self._heads.get(Edge(parent, node))
        return None if head is None else head.value

    def _note(self, key: HeadKey, head: Head) -> None:
        """Write down a head's edge, without drawing conclusions."""
        self._nodes.add(key.node)
        if key.parent:
            self._nodes.add(key.parent)
        if _is_edge(key):
            self._heads[Edge(key.parent, key.node)] = head
            self._known_up.setdefault(key.node, set()).add(key.parent)

    def _lives(self, edge: Edge) -> bool:
        head = self._heads.get(edge)
        return head is not None and not head.deleted

    def _change(self, edge: Edge, before: Head | None, head: Head) -> bool:
        """Bring the tree up to date after one edge's head changed; return whether it changed."""
        lived = before is not None and not before.deleted
        lives = not head.deleted
        if not lived and not lives:
            return self._settle(edge.node)
        if lives and not lived and not self._must_stay_out(edge):
            # It closes no cycle with any edge of the tree. So none of those that are newer closes
            # one with it, and those left out still close the ones that they closed.
            self._link(edge)
            self._settle(edge.node)
            return True
        if not self._left_out and not lives:  # without cycles, an edge less makes none
            self._unlink(edge)
            self._settle(edge.node)
            return True
        if not self._left_out and lived:  # nor does another age of an edge
            return False
        return self._rebuild()

    def _must_stay_out(self, edge: Edge) -> bool:
        return edge.node == self.root or self._way_down(edge.node, edge.parent) is not None

    def _way_down(self, top: str, bottom: str) -> list[str] | None:
        """Return the shortest way down, both ends included; found upwards, where nodes are few."""
        if top == bottom:
            return [top]
        if top != self.root and not self._down.get(top):
            return None
        below = {bottom: ""}
        todo = deque([bottom])
        while todo:
            node = todo.popleft()
            for parent in self.parents(node):
                if parent not in below:
                    below[parent] = node
                    todo.append(parent)
            if top in below:
                way = [top]
                while way[-1] != bottom:
                    way.append(below[way[-1]])
                return way
        return None

    def _link(self, edge: Edge) -> None:
        self._up.setdefault(edge.node, set()).add(edge.parent)
        self._down.setdefault(edge.parent, set()).add(edge.node)

    def _unlink(self, edge: Edge) -> None:
        for ends, one, other in (
            (self._up, edge.node, edge.parent),
            (self._down, edge.parent, edge.node),
        ):
            ends[one].remove(other)
            if not ends[one]:
                del ends[one]

    def _settle(self, node: str) -> bool:
        """See whether a node hangs under the root without an edge; return whether that changed."""
        free = node != self.root and not self._up.get(node) and not self.is_deleted(node)
        if free is (node in self._free):
            return False
        (self._free.add if free else self._free.remove)(node)
        return True

    def _rebuild(self) -> bool:
        """Build the tree from nothing but the heads; return whether it is another one."""
        before = self._up, self._left_out, self._free
        self._up, self._down, self._left_out, self._free = {}, {}, set(), set()
        alive = [edge for edge in self._heads if self._lives(edge)]
        core = _core(alive)
        for edge in alive:
            if edge not in core:
                self._take_in(edge)
        for edge in sorted(core, key=lambda edge: (self._heads[edge].rank(), edge)):
            self._take_in(edge)
        for node in self._nodes:
            self._settle(node)
        return before != (self._up, self._left_out, self._free)

    def _take_in(self, edge: Edge) -> None:
        if self._must_stay_out(edge):
            self._left_out.add(edge)
        else:
            self._link(edge)


def _core(edges: Iterable[Edge]) -> set[Edge]:
    """Return the edges among which all cycles are: peel off nodes that nothing leads to or from."""
    into: defaultdict[str, set[Edge]] = defaultdict(set)
    out_of: defaultdict[str, set[Edge]] = defaultdict(set)
    for edge in edges:
        into[edge.node].add(edge)
        out_of[edge.parent].add(edge)
    todo = [node for node in into.keys() | out_of.keys() if not (into[node] and out_of[node])]
    while todo:
        node = todo.pop()
        for edge in into.pop(node, set()):
            out_of[edge.parent].discard(edge)
            if not out_of[edge.parent]:
                todo.append(edge.parent)
        for edge in out_of.pop(node, set()):
            into[edge.node].discard(edge)
            if not into[edge.node]:
                todo.append(edge.node)
    return set().union(*into.values())


def _is_edge(key: HeadKey) -> bool:
    return bool(key.parent) and key.type == NODE_TYPE and not key.key
