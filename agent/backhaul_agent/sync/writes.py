"""Config written on the vehicle: checked, stamped, and made into messages. A pure core, no I/O.

What belongs together is one frame, applied whole or not at all. Every refusal has a code for programs
and a sentence for people, and nothing of what was refused is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backhaul_agent.commit.contents import ConfigWrite
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ledger.eviction_policy import CONFIG
from backhaul_agent.ledger.rows import Outgoing
from backhaul_agent.sync.requests import (
    POINTS_MAX,
    CreateRequest,
    MirrorRequest,
    MoveRequest,
    NodeRequest,
    PointRequest,
    SetRequest,
    value_of,
)
from backhaul_codec import CodecError, Point, Value, encode_frame, encode_point
from backhaul_codec.rules import require_name
from backhaul_codec.state.merge import HeadKey, tombstone_for
from backhaul_codec.state.tree import NODE_TYPE
from backhaul_codec.subjects import (
    NODE_TYPE_PREFIX,
    edge_frame_subject,
    edge_subject,
    node_frame_subject,
    point_subject,
)
from backhaul_codec.wire.addressed import Addressed, edge_frame_points

WRITE_BYTES_MAX = 512 * 1024  # of one message: half of what a server takes
TYPE = "node"  # of a node that nobody gave one


class _Draft(NamedTuple):
    """A point that is not stamped yet."""

    key: HeadKey
    value: Value
    tombstone: int


class ConfigWrites:
    """Makes writes. Each must be committed, or given up, before the next one is made.

    All methods raise RefusedError.
    """

    def __init__(self, keeper: HeadKeeper, *, value_bytes_max: int) -> None:
        self._keeper = keeper
        self._value_bytes_max = value_bytes_max

    def set(self, request: SetRequest) -> ConfigWrite:
        """Write points of a node, or of an edge that there is."""
        if not request.points:
            raise RefusedError(Code.BAD_FIELD, 'there is nothing in "points"')
        _require_names(request.node)
        if request.parent and request.parent not in self._edges(request.node):
            raise RefusedError(
                Code.NO_SUCH_NODE, f"there is no edge from {request.parent!r} to {request.node!r}"
            )
        return self._write(self._drafts(request.parent, request.node, request.points))

    def create(self, request: CreateRequest) -> ConfigWrite:
        """Write a new node: its first edge and points, all in one frame."""
        parent = request.parent or self._root
        _require_names(request.node, parent)
        if request.node == self._root or self._edges(request.node):
            raise RefusedError(
                Code.EXISTS, f"there is a node {request.node!r} already: mirror it, or move it"
            )
        edge = self._new_edge(parent, request.node, request.type or self._type(request.node))
        return self._write([edge, *self._drafts("", request.node, request.points)])

    def mirror(self, request: MirrorRequest) -> ConfigWrite:
        """Write one edge more down to a node."""
        self._require_node(request.node)
        type_ = self._type(request.node)
        edges = [self._new_edge(request.parent, request.node, type_)]
        if not self._edges(request.node):
            # It hangs under the root without an edge, and shall go on doing so.
            edges.append(self._new_edge(self._root, request.node, type_))
        return self._write(*([edge] for edge in edges))

    def move(self, request: MoveRequest) -> ConfigWrite:
        """Write the new edge, and after it the end of the old one: the node always hangs somewhere."""
        self._require_node(request.node)
        edges = self._edges(request.node)
        old = self._one_of(edges or [self._root], request.from_, request.node, "from")
        drafts = [self._new_edge(request.to, request.node, self._type(request.node))]
        if edges:
            drafts.append(self._end(old, request.node))
        return self._write(*([draft] for draft in drafts))

    def delete(self, request: NodeRequest) -> ConfigWrite:
        """Write the end of one edge, or of all: then the node is deleted, and all nodes under it only."""
        self._require_node(request.node)
        edges = self._edges(request.node) or [self._root]
        if request.parent:
            edges = [self._one_of(edges, request.parent, request.node, "parent")]
        return self._write(*([self._end(parent, request.node)] for parent in edges))

    def undelete(self, request: NodeRequest) -> ConfigWrite:
        """Write an edge back that was deleted."""
        _require_names(request.node)
        gone = self._edges(request.node, deleted=True)
        if not gone:
            raise RefusedError(Code.NO_SUCH_NODE, f"no edge to {request.node!r} was deleted")
        parent = self._one_of(gone, request.parent, request.node, "parent")
        return self._write([self._new_edge(parent, request.node, self._type(request.node))])

    @property
    def _root(self) -> str:
        return self._keeper.tree.root

    def _edges(self, node: str, *, deleted: bool = False) -> list[str]:
        """Return the upper ends of a node's edges, those left out of the tree too."""
        return [
            key.parent
            for key, head in self._keeper.heads.of_node(node).items()
            if key.parent and key[2:] == (NODE_TYPE, "") and head.deleted is deleted
        ]

    def _type(self, node: str) -> Value:
        edges = self._edges(node) or self._edges(node, deleted=True)
        known = self._keeper.tree.node_type(edges[0], node) if edges else None
        return TYPE if known is None else known

    def _require_node(self, node: str) -> None:
        _require_names(node)
        tree = self._keeper.tree
        if node == tree.root:
            raise RefusedError(Code.BAD_FIELD, f"{node!r} is the root of the tree: it stays")
        if node not in tree.nodes or tree.is_deleted(node):
            raise RefusedError(Code.NO_SUCH_NODE, f"there is no node {node!r}")

    def _new_edge(self, parent: str, node: str, type_: Value) -> _Draft:
        tree = self._keeper.tree
        _require_names(parent)
        if parent in self._edges(node):
            raise RefusedError(Code.EXISTS, f"{node!r} is under {parent!r} already")
        if parent != tree.root and (parent not in tree.nodes or tree.is_deleted(parent)):
            raise RefusedError(Code.NO_SUCH_NODE, f"there is no node {parent!r} to be the parent")
        if (cycle := tree.closes(parent, node)) is not None:
            raise RefusedError(Code.CYCLE, f"a node cannot be below itself: {' > '.join(cycle)}")
        return self._draft(HeadKey(parent, node, NODE_TYPE), type_, deleted=False)

    def _end(self, parent: str, node: str) -> _Draft:
        key = HeadKey(parent, node, NODE_TYPE)
        head = self._keeper.heads.get(key)
        return self._draft(key, TYPE if head is None else head.value, deleted=True)

    def _one_of(self, parents: Sequence[str], named: str, node: str, field: str) -> str:
        """Return the parent that is meant."""
        if named and named not in parents:
            raise RefusedError(
                Code.NO_SUCH_NODE, f"{node!r} has no such edge from {named!r}: {_listed(parents)}"
            )
        if not named and len(parents) > 1:
            raise RefusedError(
                Code.AMBIGUOUS,
                f'{node!r} has several parents, say which in "{field}": {_listed(parents)}',
            )
        return named or parents[0]

    def _drafts(self, parent: str, node: str, points: Sequence[PointRequest]) -> list[_Draft]:
        if len(points) > POINTS_MAX:
            raise RefusedError(
                Code.TOO_LARGE, f"{len(points)} points in one write, {POINTS_MAX} are allowed"
            )
        drafts = [self._point(HeadKey(parent, node, each.type, each.key), each) for each in points]
        if len({draft.key for draft in drafts}) < len(drafts):
            raise RefusedError(Code.BAD_FIELD, "one write says twice what a point is")
        return drafts

    def _point(self, key: HeadKey, request: PointRequest) -> _Draft:
        if not key.type or (key.parent and key.type.startswith((NODE_TYPE_PREFIX, NODE_TYPE))):
            raise RefusedError(
                Code.BAD_FIELD,
                f"type {key.type!r}: not empty, and an edge's nodeType is for agent.node",
            )
        if not request.delete:
            return self._draft(key, value_of(request, self._value_bytes_max), deleted=False)
        head = self._keeper.heads.get(key)
        if head is None:
            raise RefusedError(
                Code.NO_SUCH_POINT, f"there is no {key.type!r} {key.key!r} to delete"
            )
        return self._draft(key, head.value, deleted=True)

    def _draft(self, key: HeadKey, value: Value, *, deleted: bool) -> _Draft:
        head = self._keeper.heads.get(key)
        try:
            tombstone = tombstone_for(head.tombstone if head else 0, deleted=deleted)
        except CodecError as error:
            raise RefusedError(Code.SPENT, f"{key.type!r}: {error.reason}") from error
        return _Draft(key, value, tombstone)

    def _write(self, *messages: list[_Draft]) -> ConfigWrite:
        """Stamp drafts, all alike; those of one list become one message."""
        time = self._keeper.next_stamp(draft.key for drafts in messages for draft in drafts)
        addressed = [[_addressed(draft, time) for draft in drafts] for drafts in messages]
        try:
            made = [message_of(each[0].parent, each) for each in addressed]
        except CodecError as error:
            raise RefusedError(Code.BAD_VALUE, error.reason) from error
        if (size := max(len(message.body) for message in made)) > WRITE_BYTES_MAX:
            raise RefusedError(
                Code.TOO_LARGE, f"a write of {size} bytes, {WRITE_BYTES_MAX} are allowed"
            )
        return ConfigWrite(made, [each for message in addressed for each in message])


def _addressed(draft: _Draft, time: int) -> Addressed:
    key = draft.key
    return Addressed(
        key.parent, Point(key.node, key.type, time, draft.value, key.key, draft.tombstone)
    )


def message_of(
    parent: str, addressed: Sequence[Addressed], *, said_again: bool = False
) -> Outgoing:
    """Return one point as it is, several as a frame of the node, or with ``parent`` of the edge.

    A frame of an edge may hold points of the lower node as well. ``said_again``: all were sent before,
    which only a frame can say.
    Raises: CodecError.
    """
    first = addressed[0].point
    if len(addressed) == 1 and not said_again:
        names = (first.node, first.type, first.key)
        of_edge = addressed[0].parent
        subject = edge_subject(of_edge, *names) if of_edge else point_subject(*names)
        body = encode_point(first, epoch=0, seq=0)
    else:
        points = [each.point for each in addressed]
        subject = node_frame_subject(first.node)
        if parent:
            subject = edge_frame_subject(parent, first.node)
            edge = [each.point for each in addressed if each.parent]
            points = edge_frame_points(edge, [each.point for each in addressed if not each.parent])
        body = encode_frame(points, epoch=0, seq=0, said_again=said_again)
    times = [each.point.time for each in addressed]
    return Outgoing("live", subject, body, CONFIG, (min(times), max(times)))


def _require_names(*names: str) -> None:
    for name in names:
        if not name:
            raise RefusedError(Code.BAD_FIELD, "a node's name is empty")
        try:
            require_name(name, "node")
        except CodecError as error:
            raise RefusedError(Code.BAD_FIELD, error.reason) from error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
