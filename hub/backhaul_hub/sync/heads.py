"""The hub's heads: the current value of every series of every device, merged. Pure.

`DeviceHeads` is one device's, `FleetHeads` all of them and what of them is not in hub.db yet.
The hub's own graph of groups is kept as the heads of a device named FLEET that has no vehicle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from backhaul_codec import Point, decode, encode_point
from backhaul_codec.state.merge import Head, HeadKey, Heads, Merged, merge
from backhaul_codec.state.merge import ValueChange as Merge
from backhaul_codec.wire.addressed import Addressed
from backhaul_hub.db.change import RowChange

_HUB = "hub"


def is_hub_origin(origin: str) -> bool:
    """Tell whether a point was written at the hub."""
    return origin == _HUB or origin.startswith(f"{_HUB}:")


def hub_origin(who: str) -> str:
    """Return the origin of points that `who` writes at the hub ("": nobody in particular)."""
    return f"{_HUB}:{who}" if who else _HUB


class StoredHead(NamedTuple):
    """One row of table `head`."""

    device: str
    key: HeadKey
    head: Head
    heard_ns: int


class HeadChange(NamedTuple):
    """One head that is another one than before."""

    device: str
    key: HeadKey
    head: Head
    before: Head | None


class DeviceHeads:
    """The hub's heads of one device.

    `heard_ns` of a series is the newest stamp that its vehicle gave it, as far as the hub has
    heard: a vehicle's stamps only grow, so what is not newer was known already.
    """

    def __init__(self) -> None:
        self.heads = Heads()
        self.newest_ns = 0
        """The newest stamp of all heads; ns since the Unix epoch."""
        self._heard: dict[HeadKey, int] = {}

    def restore(self, row: StoredHead) -> None:
        """Take in a head that was stored before."""
        self.offer(row.key.parent, row.head.to_point(row.key))
        self._heard[row.key] = row.heard_ns

    def heard_ns(self, key: HeadKey) -> int:
        """Return the newest stamp of the vehicle's own for a series; below all stamps if none."""
        return self._heard.get(key, -(1 << 63))

    def would(self, parent: str, point: Point) -> Merged:
        """Return the result that `offer` would have."""
        return merge(self.heads.get(HeadKey.of(parent, point)), point)

    def offer(self, parent: str, point: Point) -> Merged:
        """Merge a point in."""
        merged = self.heads.offer(parent, point)
        self.newest_ns = max(self.newest_ns, merged.head.time)
        return merged

    def replace(self, parent: str, point: Point) -> Merged:
        """Put a point in place of a head from the future: the vehicle's own word, by a better clock."""
        key = HeadKey.of(parent, point)
        before = self.heads.get(key)
        tombstone = max(point.tombstone, before.tombstone if before else 0)
        head = replace(Head.of(point), tombstone=tombstone)
        self.heads.put(key, head)
        self._heard[key] = point.time
        self.newest_ns = max(each.time for _, each in self.heads)
        return Merged(head, Merge.WON, before)

    def hear(self, key: HeadKey, time: int) -> bool:
        """Take in that the vehicle has given a series this stamp; return whether that is news."""
        if time <= self.heard_ns(key):
            return False
        self._heard[key] = time
        return True

    def next_stamp_ns(self, now_ns: int) -> int:
        """Return the stamp of a write now: greater than any that was ever seen."""
        return max(now_ns, self.newest_ns + 1)


class FleetHeads:
    """The heads of all devices, and which of them are to be stored."""

    def __init__(self) -> None:
        self._devices: dict[str, DeviceHeads] = {}
        self._unstored: set[tuple[str, HeadKey]] = set()

    def restore(self, rows: Iterable[StoredHead]) -> None:
        """Take in the stored rows."""
        for row in rows:
            self.of(row.device).restore(row)

    def of(self, device: str) -> DeviceHeads:
        """Return a device's heads; none at all, where it is not known yet."""
        return self._devices.setdefault(device, DeviceHeads())

    def get(self, device: str, key: HeadKey) -> Head | None:
        """Return one head."""
        known = self._devices.get(device)
        return known.heads.get(key) if known is not None else None

    def newer_than(self, time_ns: int) -> set[str]:
        """Return the devices that have a head with a later stamp."""
        return {device for device, mine in self._devices.items() if mine.newest_ns > time_ns}

    def all(self) -> Iterator[tuple[str, HeadKey, Head]]:
        """Yield the heads of all devices."""
        for device, mine in self._devices.items():
            for key, head in mine.heads:
                yield device, key, head

    def take(
        self, device: str, addressed: Addressed, *, stored: bool = False, instead: bool = False
    ) -> Merged:
        """Merge a point in, from either end; `stored` where hub.db has it already.

        `instead`: it takes the place of a head from the future.
        """
        parent, point = addressed
        mine = self.of(device)
        key = HeadKey.of(parent, point)
        merged = mine.replace(parent, point) if instead else mine.offer(parent, point)
        heard = not is_hub_origin(point.origin) and mine.hear(key, point.time)
        if (merged.changed or heard or instead) and not stored:
            self._unstored.add((device, key))
        return merged

    def rows(self, device: str, keys: Iterable[HeadKey]) -> list[StoredHead]:
        """Return heads that there are, as they are to be stored."""
        mine = self.of(device)
        return [
            StoredHead(device, key, head, mine.heard_ns(key))
            for key in keys
            if (head := mine.heads.get(key)) is not None
        ]

    def take_changes(self) -> list[RowChange]:
        """Return the rows to store since the last call."""
        unstored, self._unstored = self._unstored, set()
        rows = [row for device, key in unstored for row in self.rows(device, [key])]
        return [insertion(rows)] if rows else []


def insertion(rows: Iterable[StoredHead]) -> RowChange:
    """Return the statement that stores heads."""
    return RowChange(
        "INSERT OR REPLACE INTO head VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(row.device, *row.key, head_body(row.key, row.head), row.heard_ns) for row in rows],
    )


def head_row(row: Iterable[Any]) -> StoredHead:
    """Read one row of table `head`. Raises: CodecError, for a row that this never wrote."""
    device, parent, node, type_, key, point, heard_ns = row
    return StoredHead(device, HeadKey(parent, node, type_, key), head_of(point), heard_ns)


def head_body(key: HeadKey, head: Head) -> bytes:
    """Return a head as a point message: on disk as on the wire, with a checksum."""
    return encode_point(head.to_point(key), epoch=0, seq=0)


def head_of(body: bytes) -> Head:
    """Return the head that `head_body` wrote. Raises: CodecError, for anything else."""
    return Head.of(decode(body).points[0])
