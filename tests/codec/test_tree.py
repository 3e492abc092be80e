"""The tree of nodes: the same from the same heads, without cycles, and cheap to keep."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec.points import Point
from backhaul_codec.state.merge import Head, HeadKey, Heads
from backhaul_codec.state.tree import NODE_TYPE, Edge, Topology
from backhaul_codec.state.tree_text import describe, render

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

ROOT = "car"
NOON = 1_700_000_000_000_000_000
names = st.sampled_from([ROOT, *"abcde"])


def edge_points(
    nodes: st.SearchStrategy[str], most: int
) -> st.SearchStrategy[list[tuple[str, Point]]]:
    """Few times, so that edges tie and only their names decide; now and then another point."""
    return st.lists(
        st.tuples(
            nodes,
            st.builds(
                Point,
                nodes,
                st.sampled_from([NODE_TYPE] * 9 + ["weight"]),
                st.integers(NOON, NOON + 5),
                st.sampled_from(["x", "y"]),
                st.sampled_from(["", "", "", "", "", "k"]),
                tombstone=st.sampled_from([0, 0, 0, 1, 2, 3]),
            ),
        ),
        max_size=most,
    )


class Naive:
    """The definition, in the plainest words: all edges in order, each in if it closes nothing."""

    def __init__(self, heads: Iterable[tuple[HeadKey, Head]]) -> None:
        known = dict(heads)
        self.nodes = {ROOT} | {end for key in known for end in (key.parent, key.node) if end}
        edges = {
            Edge(key.parent, key.node): head
            for key, head in known.items()
            if key.parent and key.type == NODE_TYPE and not key.key
        }
        alive = {edge: head for edge, head in edges.items() if head.tombstone % 2 == 0}
        self.edges: set[Edge] = set()
        self.left_out: set[Edge] = set()
        for edge in sorted(alive, key=lambda edge: (alive[edge].rank(), edge)):
            closes = edge.node == ROOT or edge.parent in self.below(edge.node)
            (self.left_out if closes else self.edges).add(edge)
        for node in self.nodes - {ROOT}:
            has_had = {edge for edge in edges if edge.node == node}
            lives = has_had & alive.keys()
            if not lives & self.edges and (lives or not has_had):
                self.edges.add(Edge(ROOT, node))

    def below(self, top: str) -> set[str]:
        found = {top}
        while True:
            more = found | {edge.node for edge in self.edges if edge.parent in found}
            if more == found:
                return found
            found = more

    def above(self, node: str) -> set[str]:
        return {other for other in self.nodes if other != node and node in self.below(other)}


def assert_same(tree: Topology, naive: Naive) -> None:
    assert tree.left_out == sorted(naive.left_out)
    assert tree.nodes == sorted(naive.nodes)
    for node in naive.nodes:
        assert tree.parents(node) == sorted({e.parent for e in naive.edges if e.node == node})
        assert tree.children(node) == sorted({e.node for e in naive.edges if e.parent == node})
        assert tree.ancestors(node) == naive.above(node)


@pytest.mark.slow
@settings(max_examples=500)
@given(edge_points(names, 14), st.randoms(use_true_random=False))
def test_the_tree_is_what_the_heads_say(offered: list[tuple[str, Point]], random: Random) -> None:
    """Step by step, in another order, and all at once: and after each step."""
    heads = Heads()
    tree = Topology(ROOT)
    for parent, point in offered:
        before = shape(tree)
        merged = heads.offer(parent, point)
        if merged.changed:
            told = tree.apply(HeadKey.of(parent, point), merged.head)
            assert told == (shape(tree) != before)
        assert_same(tree, Naive(heads))
    again = [item for item in offered for _ in range(random.randint(1, 2))]
    random.shuffle(again)
    other, merging = Topology(ROOT), Heads()
    for parent, point in again:
        other.apply(HeadKey.of(parent, point), merging.offer(parent, point).head)
    assert shape(other) == shape(tree) == shape(Topology(ROOT, heads))
    assert render(other) == render(tree)


def shape(tree: Topology) -> object:
    nodes = [(node, tree.parents(node), tree.is_deleted(node)) for node in tree.nodes]
    return nodes, tree.edges, tree.left_out


@given(edge_points(names, 14), names, names)
def test_a_refused_edge_comes_with_its_cycle(
    offered: list[tuple[str, Point]], parent: str, node: str
) -> None:
    """And one that is not refused, if it is the newest, is in the tree."""
    heads = Heads()
    for up, point in offered:
        heads.offer(up, point)
    tree = Topology(ROOT, heads)
    cycle = tree.closes(parent, node)
    point = Point(node, NODE_TYPE, NOON + 9, "x", tombstone=4)
    merged = heads.offer(parent, point)
    if Edge(parent, node) not in tree.edges:
        tree.apply(HeadKey.of(parent, point), merged.head)
        assert (Edge(parent, node) in tree.left_out) == (cycle is not None)
    if cycle is not None:
        assert (cycle[0], cycle[1], cycle[-1]) == (parent, node, parent)
        if node != ROOT:
            for above, below in pairwise(cycle[1:]):
                assert below in tree.children(above)


@given(edge_points(names, 10))
def test_paths_lead_from_the_root_to_the_node(offered: list[tuple[str, Point]]) -> None:
    heads = Heads()
    for parent, point in offered:
        heads.offer(parent, point)
    tree = Topology(ROOT, heads)
    for node in tree.nodes:
        paths = list(tree.paths(node))
        assert len(set(map(tuple, paths))) == len(paths)
        assert bool(paths) == (node == ROOT or ROOT in tree.ancestors(node))
        for path in paths:
            assert (path[0], path[-1]) == (ROOT, node)
            assert all(high in tree.parents(low) for high, low in pairwise(path))


def grown(*edges: str, root: str = ROOT) -> Topology:
    """Return a tree of edges written one after the other, `a>b`, `-` before it deletes."""
    heads, tree = Heads(), Topology(root)
    for age, edge in enumerate(edges):
        parent, _, node = edge.lstrip("-").partition(">")
        point = Point(node, NODE_TYPE, NOON + age, "x", tombstone=edge.startswith("-"))
        tree.apply(HeadKey.of(parent, point), heads.offer(parent, point).head)
    return tree


def test_moves_mirrors_and_deletes() -> None:
    assert next(grown("car>a", "a>b", "car>b").paths("b")) == ["car", "b"]
    mirrored = grown("car>a", "car>b", "a>c", "b>c")
    assert sorted(mirrored.paths("c")) == [["car", "a", "c"], ["car", "b", "c"]]
    assert mirrored.ancestors("c") == {"car", "a", "b"}
    moved = grown("car>a", "car>b", "a>c", "b>c", "-a>c")
    assert list(moved.paths("c")) == [["car", "b", "c"]]
    deleted = grown("car>a", "a>b", "b>c", "-a>b")
    assert deleted.is_deleted("b")
    assert not list(deleted.paths("c"))
    assert deleted.parents("b") == []
    assert deleted.ancestors("c") == {"b"}
    # With its parent's edge back, all below is back.
    assert deleted.apply(HeadKey("a", "b", NODE_TYPE), Head(NOON, "", "x", 2))
    assert list(deleted.paths("c")) == [["car", "a", "b", "c"]]


def test_a_cycle_is_refused_with_its_path() -> None:
    tree = grown("car>a", "a>b", "b>c")
    assert tree.closes("c", "a") == ["c", "a", "b", "c"]
    assert tree.closes("a", "a") == ["a", "a"]
    assert tree.closes("c", "car") == ["c", "car", "a", "b", "c"]
    assert tree.closes("new", "car") == ["new", "car", "new"]
    assert tree.closes("a", "c") is None
    assert tree.closes("new", "a") is None


def test_of_two_moves_made_apart_the_newer_is_left_out() -> None:
    tree = grown("car>a", "car>b", "a>b", "b>a")
    assert tree.left_out == [("b", "a")]
    assert tree.closes("b", "a") == ["b", "a", "b"]
    # When the older goes, the newer has its way.
    assert tree.apply(HeadKey("a", "b", NODE_TYPE), Head(NOON + 9, "", "x", 1))
    assert tree.left_out == []
    assert tree.parents("a") == ["b", "car"]


def test_points_cost_nothing_on_a_large_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads()
    for number in range(10_000):
        heads.offer(f"n{number // 10}", Point(f"n{number + 1}", NODE_TYPE, NOON + number, "x"))
    tree = Topology("n0", heads)
    assert len(next(tree.paths("n9999"))) == 5
    ancestors = tree.ancestors("n9999")

    def never(*_: object) -> None:
        raise AssertionError("everything is computed again")

    monkeypatch.setattr(Topology, "_rebuild", never)
    monkeypatch.setattr(Topology, "_way_down", never)
    monkeypatch.setattr(Topology, "_settle", never)
    edge = HeadKey("n999", "n9999", NODE_TYPE)
    old = heads.get(edge)
    assert old is not None
    for key, head in (
        (HeadKey("", "n9999", "name"), Head(NOON, "", "x")),
        (HeadKey("n999", "n9999", "weight"), Head(NOON, "", 1.0)),
        (edge, old),
        (edge, replace(old, time=NOON * 2, value="y")),  # another type, and no other tree
    ):
        assert tree.apply(key, head) is False
    assert tree.ancestors("n9999") is ancestors
    assert tree.node_type("n999", "n9999") == "y"


def test_no_deep_tree_is_too_deep() -> None:
    links = [f"{number}>{number + 1}" for number in range(3000)]
    tree = grown(*links, root="0")
    assert len(tree.ancestors("3000")) == 3000
    assert tree.closes("3000", "1") == ["3000", *map(str, range(1, 3001))]
    assert len(render(tree)) == 3001
    assert shape(
        Topology("0", ((HeadKey(*edge, NODE_TYPE), Head(NOON, "", "x")) for edge in tree.edges))
    ) == shape(tree)


def test_the_tree_is_drawn() -> None:
    tree = grown(
        "car>gateway", "gateway>gps", "gps>clock", "car>gps", "a>b", "b>a", "x>old", "-x>old"
    )
    tree.apply(HeadKey("", "odd\x1b[2J", "name"), Head(NOON, "", 1))
    assert render(tree) == [
        "car",
        "\u251c\u2500 a",
        "\u2502  \u2514\u2500 b (x)",
        "\u251c\u2500 gateway (x)",
        "\u2502  \u2514\u2500 gps (x)",
        "\u2502     \u2514\u2500 clock (x)",
        "\u251c\u2500 gps (x) (see above)",
        "\u251c\u2500 'odd\\x1b[2J'",
        "\u2514\u2500 x",
        "left out: b > a would close b > a > b",
        "deleted: old",
    ]
    said = describe(tree)
    assert said["nodes"][:2] == [
        {"node": "a", "parents": ["car"]},
        {"node": "b", "parents": ["a"]},
    ]
    assert said["edges"][0] == {"parent": "a", "node": "b", "type": "x"}
    assert said["left_out"] == [{"parent": "b", "node": "a", "cycle": ["b", "a", "b"]}]
    assert (said["root"], said["deleted"]) == ("car", ["old"])
    assert "old" not in [entry["node"] for entry in said["nodes"]]
