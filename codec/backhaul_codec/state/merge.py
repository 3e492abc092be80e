"""Merge points into heads, the same on a vehicle and at its hub: the newest time wins.

A head is the current value of one series. Of two values the greater `(time, origin, encoded value)`
stays: a total order, so that both ends agree whatever the order of arrival, and a repeat changes
nothing. The tombstone goes its own way: the greater stays, odd means deleted. Both are maxima, so
`join` is commutative, associative and idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

import cbor2

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Point, Value
from backhaul_codec.wire.point_body import encode_value

_DIGEST_BYTES = 8
_TOMBSTONE_MAX = 255


class HeadKey(NamedTuple):
    """Name a series of heads. `parent` is "" for a node's own, else the edge parent->node."""

    parent: str
    node: str
    type: str
    key: str = ""

    @classmethod
    def of(cls, parent: str, point: Point) -> HeadKey:
        """Return the series of a point."""
        return cls(parent, point.node, point.type, point.key)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Hold the current value of a series.

    `time` in ns since the Unix epoch. `origin`: "" for the vehicle, `hub` or `hub:<who>` for the
    hub. Two heads are equal if every bit is: NaN equals itself, 0.0 is not -0.0, 1 is not 1.0.
    """

    time: int
    origin: str
    value: Value
    tombstone: int = 0

    @classmethod
    def of(cls, point: Point) -> Head:
        """Return a point as the head that it would be alone."""
        return cls(point.time, point.origin, point.value, point.tombstone)

    @property
    def deleted(self) -> bool:
        """Tell whether the series is deleted."""
        return bool(self.tombstone & 1)

    def rank(self) -> tuple[int, str, bytes]:
        """Return the key that decides between two values; the greater stays."""
        return self.time, self.origin, encode_value(self.value)

    def to_point(self, key: HeadKey) -> Point:
        """Return the head as a point, to be sent to the other end."""
        return Point(
            key.node, key.type, self.time, self.value, key.key, self.tombstone, self.origin
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Head):
            return NotImplemented
        return self.tombstone == other.tombstone and _compare(self, other) == 0

    def __hash__(self) -> int:
        return hash((self.tombstone, self.rank()))


class ValueChange(Enum):
    """The fate of a point's value."""

    NEW = "new"  # the first of its series
    WON = "won"  # it is the head now; or it is the head's own value with a greater tombstone
    LOST = "lost"  # the head's is greater; the point's tombstone may still have counted
    REPEAT = "repeat"  # it is the head already


class Merged(NamedTuple):
    """The effect of a point. `before` is the head that it met, None if there was none."""

    head: Head
    change: ValueChange
    before: Head | None

    @property
    def changed(self) -> bool:
        """Tell whether the head is another one than before: to be stored, and told to others."""
        return self.before is None or self.head is not self.before


def join(a: Head, b: Head) -> Head:
    """Return the head that both come to; `a` itself where `b` adds nothing."""
    winner = b if _compare(b, a) > 0 else a
    tombstone = max(a.tombstone, b.tombstone)
    if tombstone == winner.tombstone:
        return winner
    return Head(winner.time, winner.origin, winner.value, tombstone)


def merge(head: Head | None, point: Point) -> Merged:
    """Take a point into a head. The point is one that was encoded or decoded, so its value is one."""
    mine = Head.of(point)
    if head is None:
        return Merged(mine, ValueChange.NEW, None)
    merged = join(head, mine)
    order = _compare(mine, head)
    if order < 0:
        return Merged(merged, ValueChange.LOST, head)
    won = order > 0 or merged is not head
    return Merged(merged, ValueChange.WON if won else ValueChange.REPEAT, head)


def tombstone_for(current: int, *, deleted: bool) -> int:
    """Return the least tombstone from `current` on that says deleted, or not deleted.

    Raises: CodecError (`tombstone`) past 255: the series was deleted 128 times.
    """
    tombstone = current + (current % 2 != deleted)
    if tombstone > _TOMBSTONE_MAX:
        raise CodecError("a series cannot be deleted or put back any more", "tombstone")
    return tombstone


def node_digest(heads: Iterable[tuple[HeadKey, Head]]) -> str:
    """Return 16 hex digits over all heads of one node, deleted ones and those of its edges too."""
    digest = blake2b()
    for key, head in sorted(heads, key=lambda item: item[0]):
        names = (key.parent, key.type, key.key, head.time, head.origin, head.tombstone)
        # Each item of CBOR says where it ends, so no two lists of heads read the same.
        digest.update(cbor2.dumps(names))
        digest.update(encode_value(head.value))
    return digest.digest()[:_DIGEST_BYTES].hex()


def root_digest(digests: Mapping[str, str]) -> str:
    """Return 16 hex digits over the digests of all nodes."""
    digest = blake2b()
    for pair in sorted(digests.items()):
        digest.update(cbor2.dumps(pair))
    return digest.digest()[:_DIGEST_BYTES].hex()


def differing(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the nodes whose digests differ, those that only one end knows too, by name."""
    return sorted(
        node for node in mine.keys() | theirs.keys() if mine.get(node) != theirs.get(node)
    )


class Heads:
    """Hold all heads of one device in memory. Not stored anywhere: that is the caller's."""

    def __init__(self, heads: Iterable[tuple[HeadKey, Head]] = ()) -> None:
        self._nodes: dict[str, dict[HeadKey, Head]] = {}
        self._digests: dict[str, str] = {}  # of nodes that did not change since
        for key, head in heads:
            self.put(key, head)

    def offer(self, parent: str, point: Point) -> Merged:
        """Merge a point in; `parent` is the upper end of its edge, "" for a node's own."""
        key = HeadKey.of(parent, point)
        merged = merge(self.get(key), point)
        if merged.changed:
            self.put(key, merged.head)
        return merged

    def put(self, key: HeadKey, head: Head) -> None:
        """Put a head in place of any other: one that was merged elsewhere, or corrected."""
        self._nodes.setdefault(key.node, {})[key] = head
        self._digests.pop(key.node, None)

    def get(self, key: HeadKey) -> Head | None:
        """Return a series' head."""
        return self._nodes.get(key.node, {}).get(key)

    def of_node(self, node: str) -> dict[HeadKey, Head]:
        """Return a node's heads and those of the edges that lead down to it, in the order of keys."""
        return dict(sorted(self._nodes.get(node, {}).items()))

    def nodes(self) -> list[str]:
        """Return the nodes that have heads, by name."""
        return sorted(self._nodes)

    def digests(self) -> dict[str, str]:
        """Return the digest of each node, by name; only changed ones are computed again."""
        for node in self._nodes.keys() - self._digests.keys():
            self._digests[node] = node_digest(self._nodes[node].items())
        return dict(sorted(self._digests.items()))

    def root(self) -> str:
        """Return the digest of everything."""
        return root_digest(self.digests())

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def __iter__(self) -> Iterator[tuple[HeadKey, Head]]:
        for heads in self._nodes.values():
            yield from heads.items()


def _compare(a: Head, b: Head) -> int:
    """Return -1, 0 or 1. Values are encoded only where time and origin are the same."""
    if (a.time, a.origin) != (b.time, b.origin):
        return 1 if (a.time, a.origin) > (b.time, b.origin) else -1
    mine, other = encode_value(a.value), encode_value(b.value)
    return (mine > other) - (mine < other)
