"""A vehicle and the hub's `HubSync` without anything between them: messages are handed over.

Modelled: both ends' heads, an uplink in order, DOWN with one message a subject, hub.db as rows of a
real SQLite file in memory, a crash of the control plane. Not modelled: clocks that differ.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backhaul_codec import Opaque, Point, Value, encode_frame, encode_point
from backhaul_codec.state.merge import HeadKey, Heads
from backhaul_codec.subjects import (
    edge_subject,
    event_subject,
    node_frame_subject,
    parse_leaf,
    parse_uplink,
    point_subject,
)
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db import tables
from backhaul_hub.sync.conflicts import conflict_of
from backhaul_hub.sync.core import HubSync, peer_of
from backhaul_hub.sync.heads import head_row, hub_origin, is_hub_origin
from backhaul_hub.sync.outbox import Lacking, messages_of, removal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_codec.subjects import Uplink
    from backhaul_hub.db.change import RowChange
    from backhaul_hub.sync.writes import Put

DEVICE = "VID-001"
START_NS = 1_790_000_000_000_000_000


class FakeClock:
    """A clock that stands until it is moved; shared by both ends."""

    def __init__(self) -> None:
        self.ns = START_NS

    def now_ns(self) -> int:
        return self.ns

    def monotonic_s(self) -> float:
        return self.ns / 1e9


class HubDb:
    """The tables of hub.db that `HubSync` writes."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        made = tables.HEADS + tables.CONFLICTS + tables.OUTBOX + tables.DEVICE_KNOWLEDGE
        made += tables.SHADOWS
        self._connection.executescript(made)

    def write(self, changes: Sequence[RowChange]) -> None:
        for change in changes:
            self._connection.executemany(change.statement, change.rows)

    def rows(self, query: str) -> list[sqlite3.Row]:
        return self._connection.execute(query).fetchall()

    def close(self) -> None:
        self._connection.close()


class Hub:
    """The hub's end; `down` is what is in DOWN, by subject, oldest first."""

    def __init__(
        self, clock: FakeClock, devices: Sequence[str] = (DEVICE,), conflicts_max: int = 100
    ) -> None:
        self.clock = clock
        self.devices = dict.fromkeys(devices)
        self.conflicts_max = conflicts_max
        self.db = HubDb()
        self.down: dict[str, bytes] = {}
        self.core = self._new_core()

    def _new_core(self) -> HubSync:
        return HubSync(
            self.clock, FutureRule(5.0), lambda: self.devices, conflicts_max=self.conflicts_max
        )

    def crash(self) -> None:
        """Start anew with what was stored."""
        self.core = self._new_core()
        rows = self.db.rows
        dropped = rows("SELECT resolved, unresolved FROM conflicts_dropped")
        self.core.restore(
            heads=[head_row(row) for row in rows("SELECT * FROM head")],
            conflicts=[conflict_of(row) for row in rows("SELECT * FROM conflict ORDER BY id")],
            dropped=(dropped[0][0], dropped[0][1]) if dropped else (0, 0),
            lacking=[Lacking(*row) for row in rows("SELECT * FROM outbox")],
            peers={device: peer_of(text) for device, text in rows("SELECT * FROM said")},
        )

    def take(self, messages: Sequence[tuple[str, int, bytes]], device: str = DEVICE) -> None:
        """Read one batch of UP: (leaf subject, seq, body), all of one epoch."""
        for subject, seq, body in messages:
            uplink = parse_uplink(f"up.{device}.{subject}")
            key = LaneKey(device, uplink.lane, 1)
            self.core.on_message(Examined(key, seq, uplink, body), True)
        self.db.write(self.core.take_changes())
        self.core.stored()

    def set(
        self, *puts: Put, device: str = DEVICE, who: str = "", published: bool = True
    ) -> list[Point]:
        """Write some series of one node at once."""
        planned = self.core.plan(device, [puts], hub_origin(who))
        self.db.write(planned.changes)
        self.core.apply(planned)
        if published:
            self.publish()
        return [addressed.point for write in planned.writes for addressed in write.points]

    def publish(self) -> None:
        """Write into DOWN what it lacks, and what is to be said about digests."""
        while (row := self.core.outbox.first()) is not None:
            for subject, body in messages_of(self.core.heads.of(row.device).heads, row.subject):
                self._down(f"in.{row.device}.{subject}", body)
            self.db.write([removal([row])])
            self.core.outbox.done(row)
        for device in sorted(self.core.unequal):
            digests = self.core.heads.of(device).heads.digests()
            self._down(f"in.{device}.s.digest", json.dumps({"nodes": digests}).encode())
        self.core.unequal.clear()
        for subject, body in self.core.restamps.items():
            self._down(subject, body)
        self.core.restamps.clear()

    def _down(self, subject: str, body: bytes) -> None:
        self.down.pop(subject, None)
        self.down[subject] = body


@dataclass
class Vehicle:
    """The vehicle's end, as far as heads go."""

    clock: FakeClock
    device: str = DEVICE
    heads: Heads = field(default_factory=Heads)
    hub_ns: int = 0
    """The newest stamp of the hub's that was merged."""
    up: list[tuple[str, int, bytes]] = field(default_factory=list)
    """What waits to be sent."""
    _seq: int = 0
    _said_ns: int = 0
    _newest_ns: int = 0

    def send(self, subject: str, body: bytes) -> None:
        self._seq += 1
        self.up.append((subject, self._seq, body))

    def event(self, kind: str, value: object) -> None:
        body = Point("agent", kind, self.clock.ns, Opaque(6, json.dumps(value).encode()))
        self.send(event_subject(kind), encode_point(body, epoch=1, seq=self._seq + 1))

    def put(
        self, node: str, type_: str, value: Value, *, parent: str = "", tombstone: int = 0
    ) -> Point:
        """Write a series, as a local program would."""
        if self.hub_ns != self._said_ns:
            self.event("seen", {"hub_ns": self.hub_ns})
            self._said_ns = self.hub_ns
        point = Point(node, type_, self._stamp(), value, tombstone=tombstone)
        self.heads.offer(parent, point)
        self.send_head(HeadKey.of(parent, point))
        return point

    def put_frame(self, node: str, values: dict[str, Value]) -> None:
        """Write several series of a node at once."""
        stamp = self._stamp()
        points = [Point(node, type_, stamp, value) for type_, value in values.items()]
        for point in points:
            self.heads.offer("", point)
        self.send(node_frame_subject(node), encode_frame(points, epoch=1, seq=self._seq + 1))

    def send_head(self, key: HeadKey) -> None:
        head = self.heads.get(key)
        assert head is not None
        subject = edge_subject(*key) if key.parent else point_subject(*key[1:])
        self.send(subject, encode_point(head.to_point(key), epoch=1, seq=self._seq + 1))

    def digest(self) -> None:
        self.event("digest", {"root": self.heads.root(), "count": len(self.heads)})

    def take(self, subject: str, body: bytes) -> None:
        """Take one message of DOWN, its subject without `in.<device>.`."""
        if subject == "s.digest":
            self._compare(json.loads(body)["nodes"])
            return
        if subject.startswith("s.restamp."):
            self._restamp(parse_leaf(subject.replace("s.restamp", "p")), json.loads(body))
            return
        _, addressed = decode_addressed(parse_leaf(subject), body)
        for parent, point in addressed:
            merged = self.heads.offer(parent, point)
            self._newest_ns = max(self._newest_ns, merged.head.time)
            if is_hub_origin(point.origin):
                self.hub_ns = max(self.hub_ns, point.time)

    def _restamp(self, place: Uplink, said: dict[str, int]) -> None:
        assert place.node is not None
        assert place.type is not None
        key = HeadKey(place.parent or "", place.node, place.type, place.key or "")
        head = self.heads.get(key)
        if head is not None and head.time == said["time"]:
            kept = [(other, its) for other, its in self.heads if other != key]
            self.heads = Heads([*kept, (key, replace(head, time=said["now_ns"]))])
            self.send_head(key)

    def _compare(self, theirs: dict[str, str]) -> None:
        mine = self.heads.digests()
        differing = [node for node in theirs.keys() | mine if theirs.get(node) != mine.get(node)]
        for node in sorted(differing):
            for key in self.heads.of_node(node):
                self.send_head(key)
        if differing:
            self.event("digest", {"want": sorted(differing)})
        self.digest()

    def _stamp(self) -> int:
        self._newest_ns = max(self.clock.ns, self._newest_ns + 1)
        return self._newest_ns


class Link:
    """Hands messages over, when told to."""

    def __init__(self, hub: Hub, vehicle: Vehicle) -> None:
        self.hub = hub
        self.vehicle = vehicle
        self._taken: dict[str, bytes] = {}

    def up(self, count: int | None = None) -> None:
        """Hand the first `count` messages of the vehicle to the hub; all, without a number."""
        count = len(self.vehicle.up) if count is None else count
        batch, self.vehicle.up = self.vehicle.up[:count], self.vehicle.up[count:]
        if batch:
            self.hub.take(batch, self.vehicle.device)
        self.hub.publish()

    def down(self, count: int | None = None) -> None:
        """Hand the next `count` messages of DOWN to the vehicle; all, without a number."""
        prefix = f"in.{self.vehicle.device}."
        for subject, body in list(self.hub.down.items()):
            if not subject.startswith(prefix) or self._taken.get(subject) is body:
                continue
            if count == 0:
                return
            count = None if count is None else count - 1
            self._taken[subject] = body
            self.vehicle.take(subject.removeprefix(prefix), body)

    def settle(self, rounds: int = 5) -> None:
        """Compare and exchange until nothing is under way."""
        self.vehicle.digest()
        for _ in range(rounds):
            self.up()
            self.down()
