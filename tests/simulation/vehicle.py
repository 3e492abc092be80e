"""The vehicle: its lanes, which are started, connected, cut off and killed together."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.epochs import Verdict
from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.resend import ResendAsk
from backhaul_codec import Point, hash_of
from backhaul_codec.protocol.words import SPARE
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.wire.envelope import NO_LINK
from tests.simulation.book import Book
from tests.simulation.lane_parts import LANES, Cores, Ledger, Writer
from tests.simulation.lane_shell import LaneShell
from tests.simulation.models import Appended, Message, OutModel, at_once
from tests.simulation.pushing import Pushing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random
    from typing import Protocol

    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.uplink.epoch_sync import Ends, Known
    from backhaul_agent.uplink.reconcile import Verdicts
    from backhaul_hub.continuity.chain import Watermark

    class AskHub(Protocol):
        """What a vehicle can ask the hub, as far as it is connected to it."""

        def known(self, vehicle: Vehicle, epoch: int) -> tuple[Known, Ends] | None:
            """Return what the hub knows of an epoch."""

        def hashes(
            self, vehicle: Vehicle, lane: str, epoch: int, low: int, high: int
        ) -> list[str | None] | None:
            """Return the hashes of messages that the hub holds."""

        def reads(self, vehicle: Vehicle, lane: str) -> bool:
            """Tell whether the hub reads the durable of a lane."""

        def leaf_gone(self, vehicle: Vehicle) -> None:
            """Learn that a vehicle's leaf server was started anew."""

        def gave_up(self, vehicle: Vehicle, lane: str, epoch: int, low: int, high: int) -> None:
            """Learn that a vehicle says of what it does not know that it is lost."""


Disk = tuple[Ledger, dict[str, OutModel], set[int]]


class Vehicle:
    """One vehicle: its ledger, its leaf server's streams, its agent while it runs."""

    expects = True
    asks_first = True

    def __init__(
        self,
        random: Random,
        cores: Cores,
        now_ns: int,
        hub: AskHub,
        *,
        pushes: bool = False,
    ) -> None:
        self.random = random
        self.hub = hub
        self._pushes = pushes
        self.under_way: list[Message] = []
        """Messages that were pushed, and are on the link: first the oldest."""
        self.pushing: Pushing | None = None
        self.cores = cores
        self.faulty = True
        self.now_ns = now_ns
        self.clock_error_ns = 0
        self.book = Book()
        self._outs: dict[str, OutModel] = {}
        self.ledger = Ledger(self._draw_epoch())
        self.machine = f"{random.getrandbits(64):016x}"
        """What the hub knows it by."""
        self.own: set[int] = set()
        """Ids of the points that this machine, or the disk that it was copied from, acknowledged."""
        self._copy: Disk | None = None
        self.lanes: dict[str, LaneShell] = {}
        self.heads = cores.heads()
        self.restart()

    def out(self, name: str) -> OutModel:
        """Return a lane's OUT stream, made if it is not there."""
        if name not in self._outs:
            self.book.streams += 1
            self._outs[name] = OutModel(f"{name} {self.book.streams}")
        return self._outs[name]

    def commit(self, lane: str, kind: str, body: object) -> Message:
        """Write one message to the ledger, durably."""
        self.decide()
        row = self.ledger.lanes[lane]
        time_ns = self.now_ns + self.clock_error_ns
        message = self.ledger.put(
            Message(lane, self.ledger.epoch, row.next_seq, kind, body, time_ns)
        )
        self.book.by_data[message.data] = message
        return message

    def publish(self, lane: str, points: int) -> None:
        """Acknowledge some points."""
        book = self.book
        ids = tuple(range(book.points + 1, book.points + 1 + points))
        book.points += points
        message = self.commit(lane, "points", ids)
        self.own.update(ids)
        book.acknowledged.update(dict.fromkeys(ids, message))

    def explain(self, lane: str, epoch: int, low: int, high: int, why: str) -> None:
        """Give seqs that will never come a receipt, with the hash of the last where that is known."""
        known = self.ledger.lane(lane, epoch)
        behind = at_once(self.ledger.hash_at(known, high)) if known else None
        self.commit("live", "receipt", (lane, epoch, low, high, why, behind or b""))

    def gave_up(self, lane: str, epoch: int, low: int, high: int) -> None:
        """Say of what nobody but this ledger could know that it is lost."""
        self.hub.gave_up(self, lane, epoch, low, high)

    def move(self, lane: CommittedLane, verdicts: Verdicts) -> None:
        """Have messages of a former epoch go into its spare one, as `reconcile.judge` says."""
        ledger, by_data, changes = self.ledger, self.book.by_data, verdicts.changes
        before: dict[int, Message] = {}
        for place in map(ledger.place_of, changes.evict):
            message = ledger.rows.pop(place)
            if place[1] == lane.epoch:
                before[message.seq] = message
                ledger.moved.setdefault(place[:2], set()).add(message.seq)
        for name, epoch, rows in changes.adopted:
            for row in rows:
                own = hash_of(row.subject, row.body)
                after = before[row.seq]._replace(epoch=epoch, data=row.body, link=NO_LINK, own=own)
                self._moved(by_data.setdefault(row.body, after))
            ledger.enter(changes.adopted, by_data)
            for low, high in verdicts.unused:
                self.explain(name, epoch, low, high, SPARE)
            self.commit("live", "epoch", (epoch, {name: rows[-1].seq}))

    def _moved(self, after: Message) -> None:
        if after.kind == "points":
            assert isinstance(after.body, tuple)
            self.book.acknowledged.update(dict.fromkeys(after.body, after))
            self.book.moved.update(after.body)

    def write_head(self, point: Point) -> None:
        """Write a config point."""
        self._merge(point)
        self.commit("live", "head", point)

    def mark(self, why: str) -> None:
        """Say how far the lanes are: those of the epoch that the mark will be in."""
        self.decide()
        lanes = {name: row.next_seq - 1 for name, row in self.ledger.lanes.items()}
        self.commit("live", "mark", (lanes, why))

    def take(self, seq: int, subject: str, body: object) -> None:
        """Take in a message of IN, once."""
        if subject.startswith("p."):
            assert isinstance(body, Point)
            self._merge(body)
        elif subject.startswith("s.resend."):
            assert isinstance(body, ResendAsk)
            self.lanes[subject.split(".")[2]].ask(body)
        elif subject.startswith("s.watermark."):
            assert isinstance(body, tuple)
            self._watermark(subject.split(".")[2], *body)
        elif subject.startswith("s.held."):
            assert isinstance(body, dict)
            for epoch, held in body.items():
                self._watermark(subject.split(".")[2], epoch, held)
        self.ledger.in_seq = seq

    def work(self, turns: int, now_s: float) -> None:
        """Let the agent run."""
        for lane in self.lanes.values():
            lane.work(turns, now_s)
        if self.epochs.verdict is Verdict.OVER:
            self._open_epoch()
        if self.pushing is not None:
            self.pushing.look(now_s)

    @property
    def goes_on(self) -> bool:
        """Whether the current epoch does."""
        return self.epochs.verdict is Verdict.GOES_ON

    def hear_hub(self) -> bool:
        """Learn what the hub knows of epochs; return whether it has answered all."""
        for epoch in self.words.wanted():
            answer = self.hub.known(self, epoch)
            if answer is None:
                return False
            known, ends = answer
            self.words.heard({epoch: known}, {epoch: ends})
            if epoch != self.ledger.epoch and epoch not in self.words._compared:
                self.words._compared.add(epoch)
                highest = {lane: seq for lane, (seq, _) in known.items()}
                next(iter(self.lanes.values())).look_back(epoch, highest)
        return True

    def ask_hashes(self, lane: str, epoch: int, low: int, high: int) -> list[str | None] | None:
        """Ask the hub for the hashes of messages; None: it cannot be asked now."""
        return self.hub.hashes(self, lane, epoch, low, high)

    def restart(self) -> None:
        """Begin with what the disk holds: kill -9, and start."""
        self._begin(fresh=not self.asks_first)
        for lane in self.lanes.values():
            lane.look_at_out()
        self.hear_hub()
        self.mark("start")

    def clone(self) -> Vehicle:
        """Return another machine with a copy of this one's disk, to be started."""
        other = copy(self)
        other.own = set(self.own)
        other.machine = f"{self.random.getrandbits(64):016x}"
        other.ledger = deepcopy(self.ledger)
        other.under_way = []
        other._outs = {name: out.copy() for name, out in self._outs.items()}
        return other

    def lose_power(self) -> None:
        """Lose what the leaf server had not synced, and start with what the disks hold."""
        self.restart_leaf(power_cut=True)
        self.restart()

    def _begin(self, *, fresh: bool) -> None:
        self.epochs = self.cores.epochs(
            fresh=fresh, lanes=LANES, last_seq=lambda lane: self.ledger.lanes[lane].last_seq
        )
        self.epochs.note_link(up=False, now_s=0.0)
        self.lanes = {name: LaneShell(self, name) for name in LANES}
        ledger: Any = self.ledger
        writer: Any = Writer(self)
        shells: Any = list(self.lanes.values())
        self.words = EpochWords(ledger, writer, writer, shells)
        self.heads = self.cores.heads()
        for key, point in self.ledger.heads.items():
            self.heads.offer(key.parent, point)
        self.pushing = Pushing(self) if self._pushes else None
        for lane in self.lanes.values():
            lane.connect()

    def push(self, message: Message) -> None:
        """Publish a message to the hub beside OUT."""
        self.book.pushed.add(message.own)
        self.under_way.append(message)

    def restart_leaf(self, *, power_cut: bool = False) -> None:
        """Kill the leaf server; after a power cut its streams may have lost their ends."""
        for out in self._outs.values():
            if power_cut:
                before = list(out.messages.values())
                out.lose_power(self.random)
                self._may_be_gone(before)
        for lane in self.lanes.values():
            lane.disconnect()
            lane.connect()
        self._session()

    def wipe_leaf(self) -> None:
        """Lose the leaf server's whole store."""
        before = [each for out in self._outs.values() for each in out.messages.values()]
        self._outs.clear()
        self._may_be_gone(before)
        for lane in self.lanes.values():
            lane.disconnect()
            lane.resends.lost()
            lane.connect()
        self._session()

    def _session(self) -> None:
        if self.pushing is not None:
            self.pushing.session()
        self.hub.leaf_gone(self)

    def sync_leaf(self) -> None:
        """Let the leaf's store reach the disk."""
        for out in self._outs.values():
            out.synced_seq = out.last_seq

    def trim_leaf(self) -> None:
        """Lose from OUT what the hub has taken: its limits."""
        for out in self._outs.values():
            gone = [seq for seq in out.messages if seq <= out.floor]
            self._may_be_gone([out.messages.pop(seq) for seq in gone])

    def copy_ledger(self) -> None:
        """Take a copy of the disk, to be put back some time."""
        outs = {name: out.copy() for name, out in self._outs.items()}
        self._copy = deepcopy(self.ledger), outs, set(self.own)

    def put_copy_back(self, *, whole_disk: bool = False) -> None:
        """Restore the old copy of the ledger: what was acknowledged since is not in it.

        With the whole disk the leaf's streams go back too, and nothing on the vehicle can tell.
        Otherwise nothing may be lost of what still waits in OUT.
        """
        if self._copy is None:
            return
        ledger, outs, own = self._copy
        self.ledger = deepcopy(ledger)
        if whole_disk:
            self._outs = {name: out.copy() for name, out in outs.items()}
        kept = {m.place: m.own for m in self.ledger.rows.values()}
        self.book.uncertain |= {
            id_ for id_ in self.own - self._in_out()
            if id_ not in own or kept.get((m := self.book.acknowledged[id_]).place) != m.own
        }  # fmt: skip
        self.restart()
        if whole_disk:
            self._session()

    def delete_ledger(self) -> None:
        """Lose the ledger; the leaf's streams are still there."""
        self.book.uncertain |= self.own - self._in_out()
        self._copy = None
        self.ledger = Ledger(self._draw_epoch())
        self._begin(fresh=True)
        self.mark("start")

    def _in_out(self) -> set[int]:
        """Return the points that wait in OUT for the hub to take them."""
        return {
            id_
            for out in self._outs.values()
            for seq, (message, _) in out.messages.items()
            if seq > out.floor
            for id_ in _ids(message)
        }

    def _may_be_gone(self, appended: Iterable[Appended]) -> None:
        """Note what nobody may know any more: OUT lost it, and the ledger does not know it."""
        rows, in_out = self.ledger.rows, self._in_out()
        for message, _ in appended:
            kept = rows.get(message.place)
            if kept is None or kept.own != message.own:
                self.book.uncertain |= set(_ids(message)) - in_out

    def forget(self) -> None:
        """Give up some of what the hub has confirmed: the budget."""
        for row in [*self.ledger.closed.values(), *self.ledger.lanes.values()]:
            name, epoch = row.name, row.epoch
            seqs = [each[2] for each in self.ledger.rows if each[:2] == (name, epoch)]
            for seq in sorted(seqs)[: len(seqs) // 2]:
                if seq <= row.watermark:
                    self.book.forgotten.add(self.ledger.rows.pop((name, epoch, seq)).own)

    def _watermark(self, lane: str, epoch: int, watermark: Watermark) -> None:
        claim = Claim(watermark.seq, watermark.hash or None, int(watermark.fork))
        self.lanes[lane].on_watermark(epoch, claim)

    def set_watermark(self, lane: str, seq: int, epoch: int) -> None:
        """Record how far the hub holds an epoch."""
        row = self.ledger.lane(lane, epoch)
        if row is not None:
            row.watermark = min(seq, row.last_seq)
            row.confirmed = max(row.watermark, row.confirmed)

    def _merge(self, point: Point) -> None:
        merged = self.heads.offer("", point)
        if merged.changed:
            key = HeadKey.of("", point)
            self.ledger.heads[key] = merged.head.to_point(key)

    def decide(self) -> None:
        """Settle under which epoch to commit; nobody in this model waits for the hub's word."""
        self.epochs.may_commit(0.0, urgent=True)
        if self.epochs.verdict is Verdict.OVER:
            self._open_epoch()

    def _open_epoch(self) -> None:
        """Go on under a new epoch; what the old one still owes leaves first."""
        old, lanes = self.ledger.epoch, self.ledger.lanes
        last_seqs = {name: row.last_seq for name, row in lanes.items()}
        self.ledger.open(self._draw_epoch())
        self.epochs.opened()
        self.commit("live", "epoch", (old, last_seqs))

    def _draw_epoch(self) -> int:
        return self.random.randint(1, (1 << 32) - 1)


def _ids(message: Message) -> tuple[int, ...]:
    """Return the points of a message."""
    if message.kind != "points":
        return ()
    assert isinstance(message.body, tuple)
    return message.body
