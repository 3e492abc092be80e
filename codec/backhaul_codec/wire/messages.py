"""Encode and decode whole messages: the public functions of the codec."""

from collections.abc import Sequence

import cbor2

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind, Message, Point
from backhaul_codec.wire.compression import Compression
from backhaul_codec.wire.dictionaries import require_dictionary
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_codec.wire.frame_fields import SAID_AGAIN_KEY
from backhaul_codec.wire.frame_layout import Layout, read_layout
from backhaul_codec.wire.frame_points import build_points
from backhaul_codec.wire.frame_writer import write_frame
from backhaul_codec.wire.point_body import read_point, write_point


def encode_frame(
    points: Sequence[Point],
    *,
    epoch: int,
    seq: int,
    clock: int = 0,
    compression: Compression = "deflate",
    said_again: bool = False,
) -> bytes:
    """Return one message with 1 to 2**18 points of one node, in the order given.

    `epoch` and `seq` are the ledger's, 0 where the writer keeps no lane. `clock` says how good the
    vehicle's clock was: 0 synced, 1 holdover, 2 unset. `said_again`: every point was sent before, so
    that a history keeps it only where it lacks the first. At the same number of points, points of few
    series and stamps on a coarse grid make the smallest frames; 200 points a frame is a good size.

    Raises: CodecError, naming the first rule that a point or argument breaks; nothing is encoded
    then, and the caller answers whoever brought the point.
    """
    body = write_frame(points, clock, said_again=said_again)
    return seal(body, Kind.FRAME, epoch, seq, compression)


def encode_bundle(
    points: Sequence[Point],
    *,
    epoch: int,
    seq: int,
    clock: int = 0,
    compression: Compression = "deflate",
) -> bytes:
    """Return one message with 1 to 2**18 points of any nodes, in the order given.

    Arguments are those of `encode_frame`. Raises: CodecError.
    """
    return seal(write_frame(points, clock, bundle=True), Kind.BUNDLE, epoch, seq, compression)


def encode_point(point: Point, *, epoch: int, seq: int, compression: Compression = "none") -> bytes:
    """Return one message with one point.

    Node, type and key are not in it: publish it on `subjects.point_subject(...)`. A message
    that programs read from a stream without our codec is not to be compressed.
    Raises: CodecError.
    """
    return seal(write_point(point), Kind.POINT, epoch, seq, compression)


def decode(
    message: bytes, *, node: str | None = None, type: str | None = None, key: str | None = None
) -> Message:
    """Return the message with its points in arrival order.

    `node`, `type` and `key` come from the subject. A frame brings its own; a `node` given must be
    the same. A point has none (empty, where none is given); a bundle's points have theirs. A dictionary has no points.
    Raises: CodecError, for any bytes that are not exactly a message.
    """
    header, body = unseal(message)
    if header.kind is Kind.POINT:
        time, value, tombstone, origin = read_point(body)
        point = Point(node or "", type or "", time, value, key or "", tombstone, origin)
        return Message(header.kind, header.epoch, header.seq, [point])
    layout = _layout_of(header, body, node)
    if layout is None:
        return Message(header.kind, header.epoch, header.seq, [])
    return Message(header.kind, header.epoch, header.seq, build_points(layout), layout.clock)


def check(message: bytes, *, node: str | None = None) -> Header:
    """Prove everything that decode would, without building points, and return the header.

    Raises: CodecError, exactly where decode would.
    """
    return prove(message, node)[0]


def is_said_again(message: bytes) -> bool:
    """Tell whether a message is a frame of points that were all sent before.

    Of a message that was proven: of others the answer means nothing. Raises: CodecError.
    """
    header, body = unseal(message)
    return header.kind is Kind.FRAME and cbor2.loads(body).get(SAID_AGAIN_KEY) == 1


def prove(message: bytes, node: str | None) -> tuple[Header, Layout | None]:
    """Prove a message as `check` does; return its header, and of a frame or bundle the layout.

    Raises: CodecError.
    """
    header, body = unseal(message)
    if header.kind is Kind.POINT:
        read_point(body)
        return header, None
    return header, _layout_of(header, body, node)


def read_frame(body: bytes, node: str | None) -> Layout:
    """Return the layout of a frame that came on a subject of `node` (None: of any)."""
    layout = read_layout(body)
    require_node(layout, node)
    return layout


def require_node(layout: Layout, node: str | None) -> None:
    """Refuse a frame that came on the subject of another node (None: any)."""
    if node is not None and node != layout.node:
        raise CodecError(f"a frame of node {layout.node!r} came on the subject of {node!r}", "node")


def frame_layout(message: bytes, node: str | None) -> Layout:
    """Return the layout of a message that must be a frame or bundle. Raises: CodecError, `kind` if it is none."""
    header, body = unseal(message)
    layout = None if header.kind is Kind.POINT else _layout_of(header, body, node)
    if layout is None:
        raise CodecError(f"a {header.kind.name.lower()} is no frame", "kind")
    return layout


def _layout_of(header: Header, body: bytes, node: str | None) -> Layout | None:
    """Return the layout of a frame or bundle, None of a dictionary, which has no points."""
    if header.kind is Kind.DICTIONARY:
        require_dictionary(body)
        return None
    if header.kind is Kind.BUNDLE:
        return read_layout(body, bundle=True)
    return read_frame(body, node)
