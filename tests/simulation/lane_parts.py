"""A model of the ledger and its writer, and the real cores of a lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.epochs import Epochs, Verdict
from backhaul_agent.ledger.chain import UNCHAINED, ChainEnd
from backhaul_agent.ledger.lanes import CommittedLane, entered, opened
from backhaul_agent.ledger.rows import LedgerRow, OwnRow
from backhaul_agent.push.pusher import Pusher
from backhaul_agent.uplink.adoption import Adoption
from backhaul_agent.uplink.appender import Appender, Limits
from backhaul_agent.uplink.confirmations import Confirmations
from backhaul_agent.uplink.epoch_order import choose
from backhaul_agent.uplink.reconcile import (
    ASK_ROWS,
    Verdicts,
    judge,
)
from backhaul_agent.uplink.resend import Resends, Work
from backhaul_agent.uplink.resend_requests import reasons
from backhaul_codec.state.merge import HeadKey, Heads
from backhaul_codec.wire.envelope import NO_LINK

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.ledger.rows import Adopted, LedgerChanges
    from backhaul_codec import Point
    from tests.simulation.models import Message, OutModel
    from tests.simulation.vehicle import Vehicle

LANES = ("live", "bulk")
SEQ_MAX = 1 << 62
LIMITS = Limits(window_messages=6, answer_s=5.0)
USED_AHEAD = 8
MESSAGE_BYTES = 100
RUN_MESSAGES = 4


@dataclass
class Ledger:
    """Everything that survives on the vehicle's disk; a commit is atomic."""

    epoch: int
    lanes: dict[str, CommittedLane] = field(default_factory=dict)
    closed: dict[tuple[str, int], CommittedLane] = field(default_factory=dict)
    rows: dict[tuple[str, int, int], Message] = field(default_factory=dict)
    heads: dict[HeadKey, Point] = field(default_factory=dict)
    moved: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """By lane and epoch: seqs whose messages were moved from there."""
    in_seq: int = 0

    def __post_init__(self) -> None:
        self.lanes = opened(
            [CommittedLane(0, name, 0) for name in LANES], self.epoch, len(self.closed)
        )

    @property
    def epochs(self) -> set[int]:
        """The epochs that this ledger knows."""
        return {self.epoch, *(epoch for _, epoch in self.closed)}

    def lane(self, name: str, epoch: int) -> CommittedLane | None:
        """Return a lane of any epoch."""
        return self.lanes[name] if epoch == self.epoch else self.closed.get((name, epoch))

    def chain(self, name: str) -> list[CommittedLane]:
        """Return a lane's epochs, the current one last."""
        closed = (lane for (each, _), lane in self.closed.items() if each == name)
        return [*sorted(closed, key=lambda lane: lane.id), self.lanes[name]]

    def every_lane(self) -> list[CommittedLane]:
        """Return the lanes of all epochs."""
        return [*self.closed.values(), *self.lanes.values()]

    def open(self, epoch: int) -> None:
        """Begin a new epoch."""
        last_id = max(lane.id for lane in self.every_lane())
        for lane in self.lanes.values():
            lane.used_seq = lane.last_seq
            self.closed[lane.name, lane.epoch] = lane
        self.epoch = epoch
        self.lanes = opened(self.lanes.values(), epoch, last_id)

    def put(self, message: Message) -> Message:
        """Append a message to its lane, linked to the one before it."""
        row = self.lanes[message.lane]
        message = message.linked(row.chain.hash)
        self.rows[message.place] = message
        row.next_seq = message.seq + 1
        row.chain = ChainEnd(message.seq, message.own)
        return message

    def unput(self, name: str) -> None:
        """Lose the newest message of a lane, as a commit that never reached the disk."""
        row = self.lanes[name]
        row.next_seq -= 1
        del self.rows[name, row.epoch, row.next_seq]
        before = self.rows.get((name, row.epoch, row.last_seq))
        row.chain = ChainEnd(before.seq, before.own) if before else UNCHAINED

    def enter(self, adopted: list[Adopted], known: dict[bytes, Message]) -> None:
        """Take in what was found in OUT, or moved."""
        last_id = max(lane.id for lane in self.every_lane())
        for lane in entered(self.lane, last_id, adopted):
            self.closed[lane.name, lane.epoch] = lane
        for name, epoch, rows in adopted:
            self.rows.update({(name, epoch, row.seq): known[row.body] for row in rows})

    async def hash_at(self, lane: CommittedLane, seq: int) -> bytes | None:
        """Return the hash of a message, as the real ledger tells it."""
        if seq == lane.chain.seq:
            return lane.chain.hash
        if message := self.rows.get((lane.name, lane.epoch, seq)):
            return message.own
        behind = self.rows.get((lane.name, lane.epoch, seq + 1))
        return behind.link if behind and behind.link != NO_LINK else None

    async def is_linked(self, lane: CommittedLane, seq: int) -> bool:
        """Whether a message has a link; here every one has."""
        return True

    async def is_chained(self, lane: CommittedLane, seq: int) -> bool:
        """Whether the hash at a seq says what stands below it, as the real ledger tells it."""
        span = range(lane.confirmed + 1, seq + 1)
        found = [m for each in span if (m := self.rows.get((lane.name, lane.epoch, each)))][:2]
        if len(found) < 2 and (not found or found[0].seq == seq):
            return True
        return found[-1].link != NO_LINK

    def place_of(self, id_: int) -> tuple[str, int, int]:
        """Return where the row with an id stands."""
        lane_id, seq = divmod(id_, 1 << 32)
        lane = next(lane for lane in self.every_lane() if lane.id == lane_id)
        return lane.name, lane.epoch, seq

    def owned(self, lane: CommittedLane, after_seq: int) -> list[OwnRow]:
        """Return what there is of a lane behind a seq, in order."""
        place = lane.name, lane.epoch
        rows = sorted(each for each in self.rows if each[:2] == place and each[2] > after_seq)
        return [
            OwnRow((lane.id << 32) + key[2], key[2], message.subject, message.data, 0, None, None)
            for key in rows[:ASK_ROWS]
            for message in [self.rows[key]]
        ]


class OutReader:
    """OUT as `backhaul_agent.uplink.out_stream.OutStream` shows it to who adopts from it."""

    def __init__(self, out: OutModel) -> None:
        self._out = out
        self.runs: list[Work] = []

    async def index(self) -> None:
        """Learn what stands where."""
        messages = sorted(self._out.messages.items())
        self.runs = [Work(m.epoch, m.seq, m.seq, at) for at, (m, _) in messages]

    async def rows(self, work: Work) -> list[LedgerRow]:
        """Return messages."""
        found = [self._out.messages[work.stream_seq + n] for n in range(work.hi - work.lo + 1)]
        return [LedgerRow(m.seq, m.subject, m.data) for m, _ in found]


class Writer:
    """The ledger's writer as those see it who are not the lane: each change is a commit of its own."""

    def __init__(self, vehicle: Vehicle) -> None:
        self._vehicle = vehicle
        self.gate = self
        self.unconfirmed = SimpleNamespace(formers=())
        self.over: set[int] = set()
        # Nothing is packed here.
        self.packer = SimpleNamespace(lookup=lambda _digest: None)

    @property
    def epochs(self) -> Epochs:
        """Who judges the epoch."""
        return self._vehicle.epochs

    @property
    def waiting(self) -> bool:
        """Whether commits wait for the hub's word."""
        return self.epochs.verdict is Verdict.WAITING

    def wake(self) -> None:
        """Nobody sleeps."""

    async def set_aside(self, rows: object, notes: object) -> None:
        """Commit; with the epoch over that opens a new one."""
        self._vehicle.decide()

    async def apply(self, changes: LedgerChanges) -> None:
        """Take in what was found in OUT."""
        self._vehicle.ledger.enter(changes.adopted, self._vehicle.book.by_data)
        self.tell(*changes.messages)

    def end(self, epoch: int) -> list[int]:
        """Say of the epoch of a lost ledger that it is over, as `EpochGate.end` does."""
        if epoch in self.over or epoch in self._vehicle.ledger.epochs:
            return []
        self.over.add(epoch)
        return [epoch]

    def tell(self, *ended: Any) -> None:
        """Commit the words of `end`."""
        for epoch in ended:
            self._vehicle.commit("live", "epoch", (epoch, {}))


class Cores:
    """The classes under test; a mutation puts another in place of one."""

    appender: type[Appender] = Appender
    resends: type[Resends] = Resends
    heads: type[Heads] = Heads
    epochs: type[Epochs] = Epochs
    choose: Callable[..., CommittedLane] = staticmethod(choose)
    confirmations: type[Confirmations] = Confirmations
    adoption: type[Adoption] = Adoption
    judge: Callable[..., Verdicts] = staticmethod(judge)
    reasons: Callable[..., list[tuple[int, int, str]]] = staticmethod(reasons)
    pusher: type[Pusher] = Pusher
