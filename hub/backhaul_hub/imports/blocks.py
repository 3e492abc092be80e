"""A block of rows of one device as messages: pure, and the same for the same rows every time.

An imported reading has a place like any other: device, lane `import`, epoch, seq. The epoch follows from
what stands in the rows, so a block that is published again, after whatever was lost, has the same places
and falls as a repeat; and rows that are cut otherwise have others, so that nothing is ever taken for a
repeat that is none.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

import msgspec

from backhaul_codec import CodecError, Opaque, Point, encode_frame, encode_point, restamp
from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.points import JSON
from backhaul_codec.recordings.points import PointsRow
from backhaul_codec.subjects import IMPORT, event_subject, frame_subject, import_subject

BLOCK_ROWS = 4096
FRAME_POINTS = 1000
FRAME_VALUE_BYTES = 24 * 1024
# Of how rows become messages: with another number everything has other places.
_CUT = 2


@dataclass(slots=True)
class Packed:
    """The readings of a block, in frames without a place: subject on a vehicle, and body.

    ``last_ns``: the time of the last of them. ``hours``: readings by hours since 1970. ``untimed``: rows left out. ``refused``: points left out,
    as no frame can hold them.
    """

    frames: list[tuple[str, bytes]] = field(default_factory=list)
    last_ns: int | None = None
    hours: Counter[int] = field(default_factory=Counter)
    points: int = 0
    untimed: int = 0
    refused: int = 0
    last_refusal: str = ""


def pack(rows: Iterable[PointsRow]) -> Packed:
    """Cut the readings of a block into frames. A row without a time is left out: nobody can stamp it."""
    packed = Packed()
    open_: dict[str, list[Point]] = {}
    sizes: Counter[str] = Counter()
    for time_ns, points, _ in rows:
        if time_ns is None:
            packed.untimed += 1
            continue
        packed.last_ns = time_ns
        for point in points:
            waiting = open_.setdefault(point.node, [])
            waiting.append(point)
            if isinstance(point.value, str | bytes):
                sizes[point.node] += len(point.value)
            if len(waiting) == FRAME_POINTS or sizes[point.node] >= FRAME_VALUE_BYTES:
                _close(packed, point.node, open_.pop(point.node))
                del sizes[point.node]
    for node, points in open_.items():
        _close(packed, node, points)
    return packed


def _close(packed: Packed, node: str, points: list[Point]) -> None:
    """Add a frame; of points that make none, those that can be in one."""
    try:
        packed.frames.append((frame_subject(node), encode_frame(points, epoch=0, seq=0)))
    except (CodecError, ValueError) as error:
        if len(points) > 1:
            middle = len(points) // 2
            _close(packed, node, points[:middle])
            _close(packed, node, points[middle:])
            return
        packed.refused += 1
        packed.last_refusal = str(error)
        return
    packed.points += len(points)
    packed.hours.update(point.time // HOUR_NS for point in points)


def messages(
    packed: Packed,
    device: str,
    source: str,
    rows: tuple[int, int],
    epoch: int,
    now_ns: int,
) -> list[tuple[str, bytes]]:
    """Return subject and body of each message, the last of which describes all of them.

    Args:
        packed: the readings.
        device: whose.
        source: of which recording.
        rows: from which to which row, the second not included.
        epoch: their places'; it has no other messages.
        now_ns: when they are imported.
    """
    found = [
        (import_subject(device, subject), restamp(body, epoch=epoch, seq=number))
        for number, (subject, body) in enumerate(packed.frames, 1)
    ]
    said = {"source": source, "rows": rows, "hours": sorted(packed.hours.items())}
    word = Point("", IMPORT, now_ns, Opaque(JSON, msgspec.json.encode(said)))
    body = encode_point(word, epoch=epoch, seq=len(found) + 1)
    return [*found, (import_subject(device, event_subject(IMPORT)), body)]


def epoch_of(stretch: str, taken: Mapping[int, str]) -> int:
    """Return the epoch of rows of a recording, 1 to 2^32 - 1: the same for the same rows.

    Args:
        stretch: what tells these rows from all others (`stretch_of`).
        taken: epochs that rows of the same device have, and which.
    """
    for attempt in count():
        text = msgspec.json.encode([_CUT, stretch, attempt])
        epoch = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())
        if epoch and taken.get(epoch, stretch) == stretch:
            return epoch
    raise AssertionError("unreachable")


def stretch_of(source: str, first: int, before: str, end: int, digest: str) -> str:
    """Return a key that tells the rows of a block from all others.

    Args:
        source: the recording.
        first: its first row, and `before`, the digest of all rows before that.
        before: see `first`.
        end: where it ends, and `digest`, of all rows up to there.
        digest: see `end`.
    """
    return f"{source} {first} {before} {end} {digest}"
