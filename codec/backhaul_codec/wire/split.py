"""Say how many points a frame holds and when they were; take one apart that is larger than an agent's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Opaque, Point
from backhaul_codec.wire.compression import COMPRESSIONS
from backhaul_codec.wire.envelope import CODEC_OFFSET
from backhaul_codec.wire.expansion import (
    FRAME_EXPANDED_MAX,
    FRAME_POINTS_MAX,
    ROW_BYTES,
    expansion_of,
)
from backhaul_codec.wire.frame_points import build_times
from backhaul_codec.wire.messages import decode, encode_frame, prove

if TYPE_CHECKING:
    from backhaul_codec.points import Header


class Survey(NamedTuple):
    """Hold a frame's header, the number of its points, their earliest and latest time (ns).

    `clock` is what it says of the clock: 0 synced, 1 holdover, 2 unset. `size` is what its points come
    to as rows, with all texts, in bytes.
    """

    header: Header
    n: int
    t_lo: int
    t_hi: int
    clock: int
    size: int


def survey(message: bytes, *, node: str | None = None) -> Survey:
    """Prove a frame or bundle as `check` does, and return its contents' survey.

    A ledger keeps the times beside the message, so that history need not open what lies outside.
    Raises: CodecError; code `kind` for a point.
    """
    header, layout = prove(message, node)
    if layout is None:
        raise CodecError(f"a frame was expected, this is a {header.kind.name.lower()}", "kind")
    times = build_times(layout)
    size = expansion_of(layout).size
    return Survey(header, layout.n, min(times), max(times), layout.clock, size)


class Piece(NamedTuple):
    """Hold one of several frames that are one together, and the times of its points (lo, hi)."""

    body: bytes
    times: tuple[int, int]


def split_frame(message: bytes) -> list[Piece]:
    """Return frames of FRAME_POINTS_MAX points and FRAME_EXPANDED_MAX bytes at most, in order.

    Together they have the points of the message, bit for bit, and say the same of the clock; they
    have no place in a lane (epoch and seq 0). Raises: CodecError, as `decode` does.
    """
    found = decode(message)
    compression = COMPRESSIONS[message[CODEC_OFFSET]]
    pieces = []
    for points in _cut(found.points):
        body = encode_frame(points, epoch=0, seq=0, clock=found.clock, compression=compression)
        times = [point.time for point in points]
        pieces.append(Piece(body, (min(times), max(times))))
    return pieces


def _cut(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    start = size = 0
    for at, point in enumerate(points):
        weight = _weight(point)
        if at > start and (size + weight > FRAME_EXPANDED_MAX or at - start == FRAME_POINTS_MAX):
            yield points[start:at]
            start, size = at, 0
        size += weight
    yield points[start:]


def _weight(point: Point) -> int:
    """Return the greatest size of a point (wire/expansion.py): no character takes more than four bytes."""
    value = point.value
    if isinstance(value, Opaque):
        value = value.data
    size = len(value) if isinstance(value, bytes) else 0
    texts = (
        point.node,
        point.type,
        point.key,
        point.origin,
        value if isinstance(value, str) else "",
    )
    return ROW_BYTES + size + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
