"""The vehicle's heads, and how a commit changes them: a pure core, no I/O.

Heads change in the transaction that carries the message which changes them, so a change is worked out
first (`begin`), written with the commit, and taken over (`HeadChanges.apply`) only once that is durable.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from backhaul_agent.commit.participant import CommitParticipant
from backhaul_agent.commit.queues import heads_in
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import HeadRow, Inward, Outgoing, number_of
from backhaul_agent.ledger.system_events import event, marked
from backhaul_codec import CodecError, Point, decode, encode_point
from backhaul_codec.kinds import LIVE
from backhaul_codec.state.merge import Head, HeadKey, Heads, merge
from backhaul_codec.state.tree import Topology
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import decode_addressed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.ledger.rows import Inbound
    from backhaul_codec.wire.addressed import Addressed


class WriteClock:
    """Gives stamps in ns since the Unix epoch, each greater than all it gave or was shown.

    ``now_ns``: the best there is of the hub's time. It may jump in both directions. ``reach`` hears
    what time it must be by now, so that a clock that does not know can catch up.
    """

    def __init__(
        self, now_ns: Callable[[], int], reach: Callable[[int], None] | None = None
    ) -> None:
        self.newest_ns = 0
        self._now_ns = now_ns
        self._reach = reach

    def seen(self, time_ns: int) -> None:
        """Take in a stamp that somebody else gave."""
        self.newest_ns = max(self.newest_ns, time_ns)

    def next(self, *, over_ns: int = 0) -> int:
        """Return a stamp for a write. ``over_ns``: a time that it must be greater than as well."""
        least = max(self.newest_ns, over_ns) + 1
        if self._reach is not None:
            self._reach(least)
        self.newest_ns = max(self._now_ns(), least)
        return self.newest_ns

    def pull_back(self, refused_ns: int, time_ns: int) -> None:
        """Forget a stamp that the hub refused for being in its future; go on from ``time_ns``."""
        if self.newest_ns >= refused_ns:
            self.newest_ns = time_ns


HUB = "hub"  # what the origin of everything written at the hub starts with
# What the hub's max_future_skew_s is unless it is told otherwise.
FUTURE_NS = 5_000_000_000
HUB_NS, TOLD_NS, STAMP_NS = "hub_ns", "hub_ns_told", "stamp_ns"  # names in the ledger's meta table


class Changed(NamedTuple):
    """A head that is another one than before, to be told to watchers."""

    key: HeadKey
    head: Head


class HeadKeeper(CommitParticipant):
    """Holds all heads of the device ``root`` and what goes with them.

    ``tree``: the topology that follows from the heads of edges. ``hub_ns``: the newest stamp of the hub's that was merged. ``told_ns``: the one that the hub was
    told of last, on each lane. ``stamps``: for config writes on this vehicle.

    ``synced``: whether ``now_ns`` is known to be the hub's time.
    """

    def __init__(
        self,
        root: str,
        now_ns: Callable[[], int],
        reach: Callable[[int], None] | None = None,
        lanes: Lanes | None = None,
        synced: Callable[[], bool] = lambda: True,
    ) -> None:
        self.on_heads: list[Callable[[list[Changed]], None]] = []  # told of heads that changed
        self.heads = Heads()
        self.tree = Topology(root)
        self.stamps = WriteClock(now_ns, reach)
        self.lanes = lanes or Lanes()
        self.damaged = 0
        self.hub_ns = 0
        self.told_ns: dict[str, int] = {}
        self._now_ns = now_ns
        self._synced = synced
        self._changes = self.begin()

    def status(self) -> dict[str, Any]:
        """Return the keeper's part of the status of heads."""
        return {
            "count": len(self.heads),
            "damaged_rows": self.damaged,
            "edges_left_out": len(self.tree.left_out),
        }

    def restore(self, rows: Iterable[HeadRow], meta: Mapping[str, str | int]) -> None:
        """Take over the ledger's heads; damaged rows are left out, and counted."""
        self.heads = Heads(filter(None, map(self._restored, rows)))
        self.tree = Topology(self.tree.root, self.heads)
        self.hub_ns, stamp_ns = (number_of(meta, name) for name in (HUB_NS, STAMP_NS))
        self.told_ns = {lane: number_of(meta, _told(lane)) for lane in self.lanes.names}
        self.stamps.seen(max(self.hub_ns, stamp_ns))

    def _restored(self, row: HeadRow) -> tuple[HeadKey, Head] | None:
        key = HeadKey(row.parent, row.node, row.type, row.key)
        try:
            if row.crc == _crc(key, row.body):
                (point,) = decode(row.body, node=row.node, type=row.type, key=row.key).points
                return key, Head.of(point)
        except CodecError:
            pass
        self.damaged += 1  # the other end still has it: digests will differ
        return None

    def is_future(self, time_ns: int) -> bool:
        """Return whether only a clock that was wrong can have stamped this."""
        return self._synced() and time_ns > self._now_ns() + FUTURE_NS

    def by_future(self, node: str) -> list[dict[HeadKey, Head]]:
        """Return a node's heads, those that are from the future apart from the others."""
        parts: tuple[dict[HeadKey, Head], dict[HeadKey, Head]] = {}, {}
        for key, head in self.heads.of_node(node).items():
            parts[self.is_future(head.time)][key] = head
        return [part for part in parts if part]

    def begin(self) -> HeadChanges:
        """Return an empty set of changes."""
        return HeadChanges(self)

    def contribute(self, draft: Draft) -> None:
        """Add what is written here and what the hub wrote do to the heads; put every message in its lane."""
        self._changes, changes = self.begin(), draft.changes
        for content in draft.contents:
            self._changes.write(heads_in(content))
        for inbound in draft.received:
            self._changes.receive(inbound)
        seen = marked(self._changes.seen(changes.time_ns), draft.boot)
        changes.messages = [self.lanes.place(message) for message in seen + changes.messages]
        changes.heads = self._changes.rows()
        changes.meta |= self._changes.meta()

    def committed(self, draft: Draft) -> None:
        """Take the changes over, and tell of them."""
        if changed := self._changes.apply():
            for tell in self.on_heads:
                tell(changed)

    def next_stamp(self, series: Iterable[HeadKey]) -> int:
        """Return a stamp for a config write to ``series``.

        It is later than their heads too, so that what is written last is what stands, whatever a
        program's clock gave a head before.
        """
        heads = filter(None, map(self.heads.get, series))
        return self.stamps.next(over_ns=max((head.time for head in heads), default=0))

    def forget_future(self) -> None:
        """Let stamps go on from what stands, after heads from a wrong clock's future were put right."""
        newest = max((head.time for _, head in self.heads), default=0)
        self.stamps.pull_back(0, max(newest, self.hub_ns))


class HeadChanges:
    """What one commit does to the heads. The keeper does not change before `apply`."""

    def __init__(self, keeper: HeadKeeper) -> None:
        self._keeper = keeper
        self._heads: dict[HeadKey, Head] = {}
        self._hub_ns = keeper.hub_ns
        self._told_ns: dict[str, int] = {}
        self._written_on: dict[str, None] = {}  # lanes, in their order

    def write(self, written: Iterable[Addressed]) -> None:
        """Merge points written on this vehicle."""
        for parent, point in written:
            self._written_on.setdefault(self._keeper.lanes.of_points(point.node))
            if not self._put_instead(parent, point):
                self._offer(parent, point)

    def receive(self, inward: Inward) -> None:
        """Merge points that came from the hub; put others in place of what it refused."""
        for parent, point in inward.received:
            if point.origin.startswith(HUB):
                self._hub_ns = max(self._hub_ns, point.time)
            if not self._is_outdated(parent, point):
                self._offer(parent, point)
        for (parent, point), refused_ns in inward.replaced:
            key = HeadKey.of(parent, point)
            head = self._head(key)
            if head is not None and head.time == refused_ns:
                tombstone = max(head.tombstone, point.tombstone)  # it never goes back
                self._heads[key] = replace(Head.of(point), tombstone=tombstone)

    def seen(self, time_ns: int) -> list[Outgoing]:
        """Return the events that must go before what was written here: what of the hub's was known.

        With it the hub can tell a write that knew the hub's from one that met it. Lanes overtake one
        another, so it is said on each.
        """
        hub_ns, told_ns = self._keeper.hub_ns, self._keeper.told_ns
        untold = [lane for lane in self._written_on if told_ns.get(lane, 0) != hub_ns]
        self._told_ns = dict.fromkeys(untold, hub_ns)
        seen = event("seen", {"hub_ns": hub_ns}, time_ns)
        return [seen._replace(lane=lane) for lane in untold]

    def rows(self) -> list[HeadRow]:
        """Return the rows to be written."""
        rows = []
        for key, head in self._heads.items():
            body = encode_point(head.to_point(key), epoch=0, seq=0)
            rows.append(HeadRow(*key, _crc(key, body), body))
        return rows

    def meta(self) -> dict[str, str | int]:
        """Return the facts to be written."""
        keeper = self._keeper
        facts: dict[str, str | int] = {}
        if self._hub_ns != keeper.hub_ns:
            facts[HUB_NS] = self._hub_ns
        facts |= {_told(lane): time_ns for lane, time_ns in self._told_ns.items()}
        if self._heads:
            facts[STAMP_NS] = keeper.stamps.newest_ns
        return facts

    def apply(self) -> list[Changed]:
        """Take everything over, now that it is durable; return what changed."""
        keeper = self._keeper
        for key, head in self._heads.items():
            keeper.heads.put(key, head)
            keeper.tree.apply(key, head)
        keeper.hub_ns = self._hub_ns
        keeper.told_ns |= self._told_ns
        keeper.stamps.seen(keeper.hub_ns)
        return [Changed(key, head) for key, head in self._heads.items()]

    def _head(self, key: HeadKey) -> Head | None:
        return self._heads.get(key) or self._keeper.heads.get(key)

    def _put_instead(self, parent: str, point: Point) -> bool:
        """Put what is written now in place of our own head that a wrong clock stamped, if one stands there.

        Nobody else writes with our origin, so the later word is the later one, whatever the stamps say.
        """
        key = HeadKey.of(parent, point)
        head = self._head(key)
        if head is None or head.origin or point.time >= head.time:
            return False
        if not self._keeper.is_future(head.time):
            return False
        self._heads[key] = replace(Head.of(point), tombstone=max(head.tombstone, point.tombstone))
        return True

    def _is_outdated(self, parent: str, point: Point) -> bool:
        """Return whether the hub tells what a wrong clock of ours once stamped, and we know better."""
        if point.origin or not self._keeper.is_future(point.time):
            return False
        head = self._head(HeadKey.of(parent, point))
        return head is not None and not head.origin and not self._keeper.is_future(head.time)

    def _offer(self, parent: str, point: Point) -> None:
        key = HeadKey.of(parent, point)
        merged = merge(self._head(key), point)
        if merged.changed:
            self._heads[key] = merged.head


def on_points(message: Inbound, changes: Inward) -> None:
    """Take in what the hub wrote: a point, or a frame of which all points count or none.

    Raises:
        ValueError: it is neither.
    """
    try:
        _, addressed = decode_addressed(parse_leaf(".".join(message.tokens)), message.data)
    except CodecError as error:
        raise ValueError(error.reason) from error
    changes.received += addressed


def _told(lane: str) -> str:
    return TOLD_NS if lane == LIVE else f"{TOLD_NS} {lane}"


def _crc(key: HeadKey, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32("\0".join(key).encode()))
