"""Prove and decode a message by the subject that it came on.

The subject says what the body must be and whose points are in it; agent and hub, who both take
messages from the other end, decide it here alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.errors import CodecError
from backhaul_codec.subjects import NODE_TYPE_PREFIX, Uplink
from backhaul_codec.wire.messages import decode, prove

if TYPE_CHECKING:
    from backhaul_codec.points import Header, Kind, Message, Point
    from backhaul_codec.wire.frame_layout import Layout


class Addressed(NamedTuple):
    """Hold a point and the upper end of its edge, "" for a point of the node itself."""

    parent: str
    point: Point


def check_addressed(place: Uplink, message: bytes) -> Header:
    """Prove a message and that it is of the kind and node its subject says; return the header.

    Raises: CodecError (`subject` and `node` besides those of `check`).
    """
    return prove_addressed(place, message)[0]


def prove_addressed(place: Uplink, message: bytes) -> tuple[Header, Layout | None]:
    """Prove a message as `check_addressed` does; return its header, and of a frame the layout.

    Raises: CodecError, as check_addressed.
    """
    header, layout = prove(message, place.frame_node)
    _require_kind(place, header.kind)
    return header, layout


def decode_addressed(place: Uplink, message: bytes) -> tuple[Message, list[Addressed]]:
    """Decode a message and say of each point whose it is, in the order of the message.

    In a frame of an edge, a series whose type starts with NODE_TYPE_PREFIX is the lower node's
    own, and comes back without the prefix. Raises: CodecError, as check_addressed.
    """
    message_ = decode(message, node=place.node, type=place.type, key=place.key)
    _require_kind(place, message_.kind)
    parent = place.parent or ""
    if not (parent and place.frame):
        return message_, [Addressed(parent, point) for point in message_.points]
    return message_, [_of_edge(parent, point) for point in message_.points]


def edge_frame_points(edge: Iterable[Point], node: Iterable[Point] = ()) -> list[Point]:
    """Return the points of a frame for `subjects.edge_frame_subject`.

    `edge` are points of the edge, `node` of its lower end, whose types get NODE_TYPE_PREFIX; all
    of them have the lower end as their node. Raises: CodecError (`name`) for an edge's point whose type has the prefix already.
    """
    points = list(edge)
    for point in points:
        if point.type.startswith(NODE_TYPE_PREFIX):
            raise CodecError(f"an edge's type must not start with {NODE_TYPE_PREFIX!r}", "name")
    return points + [replace(point, type=NODE_TYPE_PREFIX + point.type) for point in node]


def _of_edge(parent: str, point: Point) -> Addressed:
    if point.type.startswith(NODE_TYPE_PREFIX):
        return Addressed("", replace(point, type=point.type.removeprefix(NODE_TYPE_PREFIX)))
    return Addressed(parent, point)


def _require_kind(place: Uplink, kind: Kind) -> None:
    if kind is not place.body_kind:
        raise CodecError(f"a {kind.name.lower()} came on a subject of others", "subject")
