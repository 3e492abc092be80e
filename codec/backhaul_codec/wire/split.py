"""Take a frame apart that is larger than the frames of an agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from backhaul_codec.points import Opaque, Point
from backhaul_codec.wire.compression import COMPRESSIONS
from backhaul_codec.wire.envelope import CODEC_OFFSET
from backhaul_codec.wire.expansion import FRAME_EXPANDED_MAX, FRAME_POINTS_MAX, ROW_BYTES
from backhaul_codec.wire.messages import decode, encode_frame


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
