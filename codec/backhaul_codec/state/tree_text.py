"""Draw a tree of nodes for people, and say it as JSON, alike on both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.tree import Edge, Topology


def render(tree: Topology) -> list[str]:
    """Return the lines of a drawing, the root first.

    A node with several parents stands under each; what is below it is drawn the first time only.
    Edges left out of the tree and deleted nodes follow, each with the reason.
    """
    lines = list(_drawing(tree))
    for edge in tree.left_out:
        cycle = " > ".join(map(_name, tree.closes(edge.parent, edge.node) or edge))
        lines.append(f"left out: {_name(edge.parent)} > {_name(edge.node)} would close {cycle}")
    lines += [f"deleted: {_name(node)}" for node in tree.nodes if tree.is_deleted(node)]
    return lines


def describe(tree: Topology) -> dict[str, Any]:
    """Return the tree as JSON has it: `root`, `nodes` with their parents, `edges` with their type,
    `left_out`, `deleted`.
    """  # noqa: D205
    return {
        "root": tree.root,
        "nodes": [
            {"node": node, "parents": tree.parents(node)}
            for node in tree.nodes
            if not tree.is_deleted(node)
        ],
        "edges": [{**edge._asdict(), "type": _type(tree, edge)} for edge in tree.edges],
        "left_out": [
            {**edge._asdict(), "cycle": tree.closes(edge.parent, edge.node)}
            for edge in tree.left_out
        ],
        "deleted": [node for node in tree.nodes if tree.is_deleted(node)],
    }


def _drawing(tree: Topology) -> Iterator[str]:
    yield _name(tree.root)
    drawn: set[str] = set()
    # What is still to be drawn, the next one last: an edge, what stands before it, is it a last one.
    todo = _below(tree, tree.root, "")
    while todo:
        edge, before, last = todo.pop()
        below = _below(tree, edge.node, before + ("   " if last else "\u2502  "))
        again = bool(below) and edge.node in drawn
        yield (
            before
            + ("\u2514\u2500 " if last else "\u251c\u2500 ")
            + _label(tree, edge, again=again)
        )
        if not again:
            drawn.add(edge.node)
            todo += below


def _below(tree: Topology, node: str, before: str) -> list[tuple[Edge, str, bool]]:
    children = tree.children(node)
    return [(Edge(node, child), before, child == children[-1]) for child in reversed(children)]


def _label(tree: Topology, edge: Edge, *, again: bool) -> str:
    type_ = _type(tree, edge)
    label = _name(edge.node) if type_ is None else f"{_name(edge.node)} ({_name(str(type_))})"
    return f"{label} (see above)" if again else label


def _type(tree: Topology, edge: Edge) -> Any:
    value = tree.node_type(edge.parent, edge.node)
    return None if value is None else value_to_json(value)[0]


def _name(name: str) -> str:
    """Return a name as it is, unless it would confuse a terminal, or be overlooked."""
    return name if name and name.isprintable() else repr(name)
