"""The hub's view of vehicles' points and words: heads, conflicts, the tree. Pure.

`HubSync` takes part in the reading of UP (uplink/consumer.py). It holds everything that vehicles and the
hub agree on, and everything that is to be said to them about it; shells around it store, publish
and answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import structlog

from backhaul_codec import CodecError, Opaque, decode
from backhaul_codec.kinds import POINT, SYSTEM
from backhaul_codec.points import JSON
from backhaul_codec.state.merge import Head, HeadKey, Merged
from backhaul_codec.state.merge import ValueChange as Merge
from backhaul_codec.strict.json import JsonError, read_typed
from backhaul_codec.subjects import Uplink
from backhaul_codec.wire.addressed import Addressed, decode_addressed
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.future_stamps import FutureRule, restamps
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.device import FLEET
from backhaul_hub.sync.conflicts import HUB_CLOCK, Conflict, ConflictLedger, Side, in_conflict
from backhaul_hub.sync.device_knowledge import Word, Words
from backhaul_hub.sync.heads import FleetHeads, HeadChange, StoredHead
from backhaul_hub.sync.heads import insertion as heads_insertion
from backhaul_hub.sync.outbox import Lacking, Outbox, frame_subjects
from backhaul_hub.sync.outbox import insertion as outbox_insertion
from backhaul_hub.sync.tree import FleetTree
from backhaul_hub.sync.writes import NodeWrite, Put, plan_write
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Peer:
    """One device's words on itself and on its heads."""

    seen: Words[int] = field(default_factory=Words)
    """The newest stamp of the hub's that it had merged."""
    clock: Words[str] = field(default_factory=Words)
    """How good its clock was."""
    in_sync: bool | None = None
    """Whether both ends held the same heads when they last compared, and the hub wrote nothing
    since; None where they never did."""
    compared_ns: int = 0
    """When that was."""
    agreed_ns: int = 0
    """The newest stamp of all heads when they were the same: what the hub wrote up to it, the
    vehicle has. Later writes of the hub are newer than all stamps."""


class Announcement(NamedTuple):
    """A head that changed, and the subject tokens of all who are to hear of it."""

    change: HeadChange
    tokens: tuple[str, ...]


class PlannedWrite(NamedTuple):
    """A write, and all that goes into hub.db for it."""

    device: str
    writes: list[NodeWrite]
    lacking: list[Lacking]
    changes: list[RowChange]


class HubSync:
    """Heads of all devices, in memory, and those of them that are not in hub.db yet.

    Args:
        devices: tells which devices there are.
    """

    def __init__(
        self,
        clock: Clock,
        future: FutureRule,
        devices: Callable[[], Collection[str]],
        *,
        conflicts_max: int,
    ) -> None:
        self._clock = clock
        self._future = future
        self.heads = FleetHeads()
        self.tree = FleetTree(self.heads, devices)
        self.conflicts = ConflictLedger(conflicts_max)
        self.outbox = Outbox()
        self.announcements: deque[Announcement] = deque()
        """What is to be told to whoever listens at the hub."""
        self.unequal: set[str] = set()
        """Devices whose heads are others, to be told the digests of ours."""
        self.restamps: dict[str, bytes] = {}
        """What is to be said of refused stamps: subject to body."""
        self.news: set[str] = set()
        """Devices of which something besides a head is new: their clock, agreement, a conflict."""
        self.on_stored: list[Callable[[], None]] = []
        self._peers: dict[str, Peer] = {}
        self._peers_unstored: set[str] = set()

    def restore(
        self,
        heads: Iterable[StoredHead],
        conflicts: Iterable[Conflict],
        dropped: tuple[int, int],
        lacking: Iterable[Lacking],
        peers: dict[str, Peer],
    ) -> None:
        """Take in the stored rows."""
        self.heads.restore(heads)
        self.conflicts.restore(conflicts, *dropped)
        self.outbox.restore(lacking)
        self._peers = peers

    def peer(self, device: str) -> Peer:
        """Return a device's words."""
        return self._peers.setdefault(device, Peer())

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in one message of a vehicle. Repeats change nothing."""
        uplink = said.uplink
        if uplink.kind is POINT:
            self._take_points(said.key, said.seq, uplink, said.body, is_new)
        elif uplink.kind is SYSTEM and uplink.type in _EVENTS:
            self._take_event(said.key, said.seq, uplink.type, said.body)

    def take_changes(self) -> Sequence[RowChange]:
        """Return the rows to store with this turn."""
        changes = [*self.heads.take_changes(), *self.conflicts.take_changes()]
        if self._peers_unstored:
            self.news |= self._peers_unstored
            rows = [(device, _peer_text(self.peer(device))) for device in self._peers_unstored]
            changes.append(RowChange("INSERT OR REPLACE INTO said VALUES (?, ?)", rows))
            self._peers_unstored = set()
        return changes

    def stored(self) -> None:
        """Let the messages of this turn have their effects."""
        for effect in self.on_stored:
            effect()

    def note_news(self, device: str) -> None:
        """Let listeners look at a device again: something was settled that is no head."""
        self.news.add(device)
        self.stored()

    def compare_again(self, device: str) -> None:
        """Have a device told our digests, unless both ends are known to hold the same heads."""
        if not self.peer(device).in_sync:
            self.unequal.add(device)

    def plan(self, device: str, puts: Sequence[Sequence[Put]], origin: str) -> PlannedWrite:
        """Return writes of the hub, each whole or not at all, and the rows to store for them.

        Raises:
            WriteRefusedError: one cannot be done, so none is.
        """
        mine = self.heads.of(device)
        time_ns = max(mine.next_stamp_ns(self._clock.now_ns()), self._seen_ns(device) + 1)
        writes = [
            plan_write(mine, some, origin, time_ns + index) for index, some in enumerate(puts)
        ]
        rows = [
            StoredHead(device, key, mine.would(*addressed).head, mine.heard_ns(key))
            for write in writes
            for addressed in write.points
            for key in [HeadKey.of(*addressed)]
        ]
        changes = [heads_insertion(rows)]
        lacking: list[Lacking] = []
        if device != FLEET:  # those stay at the hub
            lacking = [self.outbox.row(device, write.subject) for write in writes]
            changes.append(outbox_insertion(lacking))
        return PlannedWrite(device, writes, lacking, changes)

    def apply(self, planned: PlannedWrite) -> None:
        """Take in a plan that is stored."""
        for write in planned.writes:
            for addressed in write.points:
                self._merge(planned.device, addressed, stored=True)
        for row in planned.lacking:
            self.outbox.add(row)
        if planned.lacking:
            self._not_in_sync(planned.device)
        self.stored()

    def _seen_ns(self, device: str) -> int:
        """Return the newest stamp of ours that a device has spoken of: hub.db may be an older one."""
        now_ns = self._clock.now_ns()
        return max(
            (
                word.said
                for word in self.peer(device).seen.words
                if not self._future.ahead_ns(word.said, now_ns)
            ),
            default=0,
        )

    def differs(self, device: str) -> bool:
        """Say whether a device has not said that it holds the heads that it was sent."""
        return self.peer(device).in_sync is False and not self.outbox.waiting(device)

    def odd(self) -> set[str]:
        """Return all devices of which `differs` or `ahead_ns` may say something, and some more."""
        ahead = self.heads.newer_than(self._clock.now_ns() + self._future.skew_ns)
        return ahead.union(device for device, peer in self._peers.items() if peer.in_sync is False)

    def ahead_ns(self, device: str) -> int:
        """Return by how much the newest head of a device is stamped too far ahead, 0 where none is."""
        return self._future.ahead_ns(self.heads.of(device).newest_ns, self._clock.now_ns())

    def _take_points(
        self, key: LaneKey, seq: int, uplink: Uplink, body: bytes, is_new: bool
    ) -> None:
        try:
            _, points = decode_addressed(uplink, body)
        except CodecError:  # checked before; a body does not change
            return
        peer, now_ns = self.peer(uplink.device), self._clock.now_ns()
        newest_ns = self.heads.of(uplink.device).newest_ns
        if early := self._future.too_early(points, now_ns, newest_ns):
            self._refuse(uplink.device, points, early, max(now_ns, newest_ns))
            return
        seen_ns = peer.seen.at(key, seq, 0)
        clock = peer.clock.at(key, seq, "unknown")
        for addressed in points:
            instead = is_new and self._is_instead(uplink.device, addressed, now_ns)
            self._take_point(uplink.device, addressed, seen_ns, clock, instead=instead)

    def _refuse(
        self, device: str, points: list[Addressed], early: list[Addressed], least_ns: int
    ) -> None:
        """Merge nothing of a message whose stamps cannot be; its points stay in the history.

        A new stamp must be later than `least_ns`: below what stands here it would be of no effect.
        """
        ahead_ns = max(each.point.time for each in early) - self._clock.now_ns()
        log.warning(
            "stamp_refused", device=device, node=points[0].point.node, ahead_s=ahead_ns / 1e9
        )
        self.restamps |= dict(restamps(device, points, least_ns))
        self._not_in_sync(device)

    def _is_instead(self, device: str, addressed: Addressed, now_ns: int) -> bool:
        """Say whether a point of the vehicle's takes the place of one that its wrong clock stamped.

        What it says now it says later, whatever the stamps say: nobody else writes with its origin.
        """
        parent, point = addressed
        head = self.heads.of(device).heads.get(HeadKey.of(parent, point))
        if head is None or head.origin or point.origin or point.time >= head.time:
            return False
        ahead_ns = self._future.ahead_ns
        return bool(ahead_ns(head.time, now_ns)) and not ahead_ns(point.time, now_ns)

    def _not_in_sync(self, device: str) -> None:
        self.peer(device).in_sync = False
        self._peers_unstored.add(device)

    def _take_point(
        self, device: str, addressed: Addressed, seen_ns: int, clock: str, *, instead: bool
    ) -> None:
        series = HeadKey.of(*addressed)
        heard_ns = self.heads.of(device).heard_ns(series)
        merged = self._merge(device, addressed, instead=instead)
        if instead:  # the vehicle may have meant another: it is asked
            self.unequal.add(device)
            self._not_in_sync(device)
        mine = Head.of(addressed.point)
        if merged.before is not None and in_conflict(
            merged.before, mine, heard_ns=heard_ns, seen_ns=seen_ns
        ):
            sides = [Side(merged.before, HUB_CLOCK), Side(mine, clock)]
            lost = merged.change is Merge.LOST
            winner, loser = sides if lost else reversed(sides)
            noticed = self.conflicts.note(
                device, series, winner=winner, loser=loser, noticed_ns=self._clock.now_ns()
            )
            self.news.add(device)
            log.warning("conflict", device=device, series=".".join(series), id=noticed.id)

    def _merge(
        self, device: str, addressed: Addressed, *, stored: bool = False, instead: bool = False
    ) -> Merged:
        """Merge a point in; where that changed a head, the tree follows, and listeners hear it."""
        # An edge above devices is its upper end's: who is below does not hear what else is above.
        whose = addressed.parent if device == FLEET and addressed.parent else addressed.point.node
        above = set(self.tree.ancestor_tokens(device, whose))
        merged = self.heads.take(device, addressed, stored=stored, instead=instead)
        if not merged.changed:
            return merged
        change = HeadChange(device, HeadKey.of(*addressed), merged.head, merged.before)
        if self.tree.apply(change):
            # Who hears of a node that moves: those whom it leaves as well as those it comes to.
            above |= set(self.tree.ancestor_tokens(device, whose))
        self.announcements.append(Announcement(change, tuple(sorted(above))))
        return merged

    def _take_event(self, key: LaneKey, seq: int, kind: str, body: bytes) -> None:
        value = decode(body).points[0].value
        if not isinstance(value, Opaque) or value.dtype != JSON:
            return
        try:
            said = read_typed(value.data, _EVENTS[kind])
        except JsonError as error:
            log.warning("event_not_understood", device=key.device, kind=kind, error=str(error))
            return
        peer = self.peer(key.device)
        match said:
            case _Seen(hub_ns):
                news = peer.seen.add(key, seq, hub_ns)
            case _Clock(quality):
                news = peer.clock.add(key, seq, quality)
            case _Digest(root, want):
                news = True
                self._compare(key.device, peer, root, want)
            case _:
                news = False
        if news:
            self._peers_unstored.add(key.device)

    def _compare(self, device: str, peer: Peer, root: str | None, want: list[str]) -> None:
        mine = self.heads.of(device).heads
        for node in want:
            for subject in frame_subjects(mine, node):
                self.outbox.add(self.outbox.row(device, subject, durable=False))
        if root is None:
            return
        peer.in_sync, peer.compared_ns = mine.root() == root, self._clock.now_ns()
        if peer.in_sync:
            peer.agreed_ns = max(peer.agreed_ns, self.heads.of(device).newest_ns)
            self.unequal.discard(device)
        else:
            self.unequal.add(device)


class _Seen(msgspec.Struct, frozen=True):
    """The JSON of an `e.seen` event."""

    hub_ns: int


class _Clock(msgspec.Struct, frozen=True):
    """The JSON of an `e.clock` event, as far as the hub's conflicts need it."""

    quality: str


class _Digest(msgspec.Struct, frozen=True):
    """The JSON of an `e.digest` event: a root to compare, or nodes that are wanted."""

    root: str | None = None
    want: list[str] = []


_EVENTS: dict[str, type[_Seen | _Clock | _Digest]] = {
    "seen": _Seen,
    "clock": _Clock,
    "digest": _Digest,
}


class _StoredPeer(msgspec.Struct):
    """A peer as it stands in table `said`."""

    seen: list[Word[int]]
    clock: list[Word[str]]
    in_sync: bool | None
    compared_ns: int
    agreed_ns: int = 0


def _peer_text(peer: Peer) -> str:
    stored = _StoredPeer(
        peer.seen.words, peer.clock.words, peer.in_sync, peer.compared_ns, peer.agreed_ns
    )
    return msgspec.json.encode(stored).decode()


def peer_of(text: str) -> Peer:
    """Read column `words` of table `said`. Raises: msgspec.DecodeError."""
    stored = msgspec.json.decode(text, type=_StoredPeer)
    words = (Words(stored.seen), Words(stored.clock))
    return Peer(*words, stored.in_sync, stored.compared_ns, stored.agreed_ns)
