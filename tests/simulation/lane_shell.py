"""A model of the ledger, and of the shell that drives a lane's real cores."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.epochs import Epochs, Verdict
from backhaul_agent.ledger.chain import UNCHAINED, ChainEnd
from backhaul_agent.ledger.lanes import CommittedLane, entered, opened
from backhaul_agent.ledger.rows import LedgerRow, OwnRow
from backhaul_agent.ledger.sequence_offsets import OffsetStep, Steps
from backhaul_agent.push.pusher import Pusher
from backhaul_agent.uplink.adoption import Adoption, HeldLane
from backhaul_agent.uplink.appender import Appender, AppenderState, AppendTurn, Limits, Tail
from backhaul_agent.uplink.comparison import EMPTY_S, OWED_S
from backhaul_agent.uplink.confirmations import OVER, Confirmations
from backhaul_agent.uplink.epoch_order import choose
from backhaul_agent.uplink.epoch_sync import PASSED_MARGIN
from backhaul_agent.uplink.pushing import PushRule
from backhaul_agent.uplink.reconcile import (
    ASK_ROWS,
    MOVED,
    Spare,
    Verdicts,
    judge,
    question_of,
)
from backhaul_agent.uplink.resend import ResendAsk, Resends, Work
from backhaul_agent.uplink.resend_requests import LOST, MISSING, reasons
from backhaul_codec.protocol.words import spare_of
from backhaul_codec.ranges import RangeSet
from backhaul_codec.state.merge import HeadKey, Heads
from backhaul_codec.wire.envelope import NO_LINK
from tests.simulation.models import Appended, Message, OutModel, at_once
from tests.simulation.pushing import Entered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backhaul_agent.ledger.rows import Adopted, LedgerChanges
    from backhaul_agent.uplink.confirmations import Claim
    from backhaul_codec import Point
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
        self.suspects = SimpleNamespace(formers=())
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


class LaneShell:
    """Does for one lane what `backhaul_agent.uplink.lane.Lane` does, without its asyncio and its NATS."""

    def __init__(self, vehicle: Vehicle, name: str) -> None:
        self.name = name
        self.stream = f"OUT_{name}"
        self.vehicle = self._vehicle = vehicle
        self.entered = Entered(self)
        self.pushing = PushRule()
        self.appender = self._appender_of(vehicle.ledger.lanes[name])
        self._finished: set[int] = set()
        self.resends = vehicle.cores.resends()
        self._run: list[Appended] = []
        self._seen_id: int | str | None = None
        self._ask: ResendAsk | None = None
        self._ahead = self._foreign = 0
        self._ends: dict[int, tuple[str, int, float]] = {}
        self._owed: dict[int, tuple[int, float]] = {}
        ledger: Any = vehicle.ledger
        writer: Any = Writer(vehicle)
        self.adoption = vehicle.cores.adoption(name, ledger, writer)
        self.confirmations = vehicle.cores.confirmations(name, ledger, writer)

    @property
    def row(self) -> CommittedLane:
        """Return the ledger's row of the lane, in the epoch whose turn it is."""
        row = self._vehicle.ledger.lane(self.name, self.appender.epoch)
        assert row is not None
        return row

    @property
    def _out(self) -> OutModel:
        return self._vehicle.out(self.name)

    def connect(self) -> None:
        """Note a new connection to the leaf server."""
        self._finished.clear()
        self._ends.clear()
        self.appender.connected()

    def disconnect(self) -> None:
        """Note that the connection is gone."""
        self.appender.disconnected()

    def work(self, turns: int, now_s: float) -> None:
        """Do what can be done, at most so many turns."""
        self.resends.flowed(self._out.floor, now_s)
        self._note_owed(now_s)
        for epoch in sorted(self.confirmations.disputed):
            if self._may_compare(epoch, now_s):
                self._compare(epoch)
        if self._ask is not None:
            self._answer(self._ask)
        for _ in range(turns):
            self._take_words()
            if self._is_over():
                self._finished.add(self.appender.epoch)
                self._enter(self._vehicle.ledger.lanes[self.name])
            self.appender.committed(self.row.last_seq)
            if self.appender.state is AppenderState.SEEKING:
                self._seek()
                if not self._vehicle.goes_on:
                    return
                continue
            if self.appender.state is AppenderState.BEHIND:
                return
            turn = self.appender.turn(asked=self.resends.ready)
            if turn is None:
                break
            if turn is AppendTurn.NEW:
                self._send_new(now_s)
            elif turn is AppendTurn.AGAIN:
                appended = self._run[-self.appender.again]
                position = (self.appender.epoch, self.appender.position)
                expected = self.appender.send_again(MESSAGE_BYTES, now_s)
                self._append(Appended(appended.message, position), expected)
                if self.pushing.pushes_again(self.name, MESSAGE_BYTES):
                    self._vehicle.push(appended.message)
                    self.resends.pushed(expected + 1)
            else:
                self._begin_run(now_s)
        self.appender.tick(now_s)

    def ask(self, ask: ResendAsk) -> None:
        """Take up what the hub asks for again."""
        if ask.id == self._seen_id:
            return
        self._seen_id = ask.id
        if ask.ranges:
            self.claims(ask.epoch, ask.ranges[-1][1])
        self._ask = ask

    def _answer(self, ask: ResendAsk) -> None:
        ledger = self._vehicle.ledger
        turn = self._turn_of(ask.epoch)
        if turn is None:
            return
        self._ask = None
        works, missing = [], []
        in_out = {(m.epoch, m.seq): at for at, (m, _) in self._out.messages.items()}
        for low, high in self.resends.not_flying(ask):
            for seq in range(low, min(high, turn) + 1):  # what is above goes in its turn
                if (self.name, ask.epoch, seq) in ledger.rows:
                    works.append(Work(ask.epoch, seq, seq))
                elif (ask.epoch, seq) in in_out:
                    works.append(Work(ask.epoch, seq, seq, in_out[ask.epoch, seq]))
                else:
                    missing.append(seq)
        self.resends.begin(works)
        lane, alone = ledger.lane(self.name, ask.epoch), ask.machine == self._vehicle.machine
        given_up = [
            (seq, seq, MOVED) for seq in sorted(ledger.moved.get((self.name, ask.epoch), ()))
        ]
        for low, high in RangeSet((seq, seq) for seq in missing):
            known = [each for each in given_up if low <= each[0] <= high]
            for first, last, why in self._vehicle.cores.reasons(
                lane, known, low, high, alone=alone
            ):
                if why in (LOST, MISSING):
                    self._vehicle.gave_up(self.name, ask.epoch, first, last)
                self._vehicle.explain(self.name, ask.epoch, first, last, why)

    def _turn_of(self, epoch: int) -> int | None:
        if self.appender.state is not AppenderState.RUNNING:
            return None
        if epoch == self.appender.epoch:
            return self.appender.position
        if epoch in self.confirmations.disputed:
            return None
        epochs = [lane.epoch for lane in self._vehicle.ledger.chain(self.name)]
        later = epoch in epochs and epochs.index(epoch) > epochs.index(self.row.epoch)
        return 0 if later else SEQ_MAX

    def on_watermark(self, epoch: int, claim: Claim) -> None:
        """Learn how far the hub holds everything of an epoch."""
        self.adoption.heard(epoch, HeldLane(claim.seq, claim.hash, claim.fork == OVER))
        if self._vehicle.ledger.lane(self.name, epoch) is None:
            return
        self.claims(epoch, claim.seq)
        self.confirmations.claim(epoch, claim)

    def on_passed(self, stream_seq: int) -> None:
        """Learn that the hub passes over all up to a sequence that OUT has not reached."""
        self._ahead = max(self._ahead, stream_seq)
        self.appender.connected()

    def _take_words(self) -> None:
        """Record what the hub has proven to hold; take in what OUT alone has."""
        for epoch, seq in at_once(self.confirmations.judge()):
            self._vehicle.set_watermark(self.name, seq, epoch)
        row = self.row
        if self.appender.confirmed < row.confirmed or self.appender.watermark != row.watermark:
            self.appender.set_watermark(row.confirmed)
            self.appender.set_watermark(row.watermark)
        if self.adoption.due:
            self._adopt()
            self.appender.connected()

    def _adopt(self, *, everything: bool = False) -> None:
        reader: Any = OutReader(self._out)
        at_once(self.adoption.take_in(reader, everything=everything))

    def _past(self, epoch: int) -> bool:
        current = self._vehicle.ledger.epoch
        at_end = (
            self.appender.state is AppenderState.RUNNING and self.appender.epoch == current != epoch
        )
        return at_end and not self.resends.pending

    def _note_owed(self, now_s: float) -> None:
        for lane in self._vehicle.ledger.chain(self.name)[:-1]:
            if lane.whole or not self._past(lane.epoch):
                continue
            watermark, since_s = self._owed.get(lane.epoch, (-1, now_s))
            since_s = since_s if watermark == lane.watermark else now_s
            self._owed[lane.epoch] = lane.watermark, since_s
            if now_s - since_s >= OWED_S:
                self.confirmations.dispute(lane.epoch, "owed for long")

    def _may_compare(self, epoch: int, now_s: float) -> bool:
        ledger, out = self._vehicle.ledger, self._out
        if (self.name, epoch) not in ledger.closed:
            if epoch != ledger.epoch:
                self.confirmations.settle(epoch)
            return False
        if not self._past(epoch):
            return False
        known = self._ends.get(epoch)
        if known is None or known[0] != out.created:
            known = self._ends[epoch] = out.created, out.last_seq, now_s
        if not out.messages or min(out.messages) > known[1]:
            return now_s - known[2] >= EMPTY_S
        return out.floor >= known[1]

    def _compare(self, epoch: int) -> None:
        """Compare an epoch with what the hub holds, message by message; as far as it answers."""
        vehicle = self._vehicle
        lane = vehicle.ledger.closed[self.name, epoch]
        after, into, moved, later = lane.confirmed, spare_of(epoch), 0, 0
        again: list[Work] = []
        while rows := vehicle.ledger.owned(lane, after):
            asked = question_of(lane, rows)
            hashes = vehicle.ask_hashes(self.name, epoch, asked.lo, asked.hi)
            if hashes is None:
                return
            there = vehicle.ledger.lane(self.name, into)
            spare = Spare()
            if there is not None:
                known = vehicle.ledger.owned(there, asked.lo - 1)
                spare = Spare(there.last_seq, there.confirmed, {row.seq: row for row in known})
            verdicts = vehicle.cores.judge(lane, rows, asked.lo, hashes, spare)
            again += [Work(epoch, low, high) for low, high in verdicts.again]
            vehicle.move(lane, verdicts)
            moved, later = moved + verdicts.moved, later + verdicts.later
            after = verdicts.settled_seq
        self._ends.pop(epoch, None)
        self._owed.pop(epoch, None)
        if moved:
            self.confirmations.dispute(into, "messages were moved there")
        if again or later:
            self.confirmations.postpone(epoch)
            for work in again:
                self.resends.drain(work)
            return
        self.confirmations.settle(epoch)
        vehicle.set_watermark(self.name, lane.last_seq, epoch)

    def look_back(self, epoch: int, highest: dict[str, int]) -> None:
        """Go on beyond what the hub may have passed, if OUT went back together with the ledger."""
        ledger = self._vehicle.ledger
        lanes = [lane for lane in ledger.every_lane() if lane.epoch == epoch]
        more = [lane for lane in lanes if highest.get(lane.name, 0) > lane.last_seq]
        for lane in more:
            held = [m for m, _ in self._vehicle.out(lane.name).messages.values()]
            if any(m.epoch not in ledger.epochs for m in held):
                return
            if any(m.epoch == epoch and m.seq > lane.last_seq for m in held):
                return
        shells = self._vehicle.lanes
        if not more or any(shell.adoption.adopted for shell in shells.values()):
            return
        for lane in lanes:
            last = max(highest.get(lane.name, 0), lane.last_seq)
            shells[lane.name].on_passed(last + lane.steps.bound(0) + PASSED_MARGIN)

    def claims(self, epoch: int, seq: int) -> bool:
        """Take in that the hub knows a seq; return whether this ledger never gave it out."""
        ledger = self._vehicle.ledger
        if epoch != ledger.epoch or seq <= ledger.lanes[self.name].last_seq:
            return False
        if epoch == self.appender.epoch:
            self.appender.claim(seq)
        self._vehicle.epochs.behind("the hub knows more")
        return True

    def look_at_out(self) -> Tail:
        """Read where the stream ends; whoever judges the epoch hears of it."""
        tail, epoch = self._tail(), self._vehicle.ledger.epoch
        seq = (tail.seq or 0) if tail.epoch == epoch else 0
        self._vehicle.epochs.out_knows(self.name, seq, stranger=bool(tail.stranger))
        return tail

    def _appender_of(self, row: CommittedLane) -> Appender:
        appender = self._vehicle.cores.appender(
            row.epoch,
            LIMITS,
            opened_seq=row.last_seq,
            used_seq=min(row.used_seq, row.last_seq),
            steps=row.steps,
        )
        appender.set_watermark(row.confirmed)
        appender.set_watermark(row.watermark)
        return appender

    def _enter(self, row: CommittedLane) -> None:
        self.appender = self._appender_of(row)
        self._run = []
        self.appender.connected()

    def _is_over(self) -> bool:
        if self.appender.epoch == self._vehicle.ledger.epoch:
            return False
        at_end = self.appender.done and self.appender.appended >= self.row.last_seq
        return (at_end and self.appender.made_whole) or self.appender.state is AppenderState.BEHIND

    def _seek(self) -> None:
        out = self._out
        tail = self.look_at_out()
        if not self._vehicle.goes_on:
            return
        known = self._vehicle.ledger.lane(self.name, tail.epoch or 0)
        beyond = known is not None and (tail.seq or 0) > known.last_seq
        if not self.adoption.looked or beyond or self._foreign:
            reader: Any = OutReader(out)
            at_once(self.adoption.look(reader))
        row = self._vehicle.cores.choose(
            self._vehicle.ledger.chain(self.name), tail, out.created, self._finished
        )
        if row.epoch != self.appender.epoch:
            self._enter(row)
        if tail.epoch != row.epoch:
            tail = Tail(tail.stream_seq)
        appender = self.appender
        appender.committed(row.last_seq)
        if self._ahead > tail.stream_seq:
            self._jump(self._ahead)
            return
        self._ahead = 0
        start = appender.start(tail, out.created)
        if start.short and not self._fill_with(start.step.from_seq, start.short):
            self._jump(tail.stream_seq)
            return
        self._set_step(start.created, start.step, fresh=start.new_stream)
        appender.sought(tail, start, [])

    def _tail(self) -> Tail:
        out, ledger = self._out, self._vehicle.ledger
        stranger, self._foreign = 0, 0
        for at in sorted(out.messages, reverse=True)[:64]:
            appended = out.messages[at]
            epoch, seq = appended.position or (appended.message.epoch, appended.message.seq)
            if epoch in ledger.epochs:
                return Tail(out.last_seq, epoch, seq, stranger)
            self._foreign += 1
            if not stranger:
                steps = ledger.lanes[self.name].steps
                if out.created != steps.created or not steps.steps:
                    newer = bool(steps.created)
                else:
                    newer = at > steps.steps[-1].from_seq + steps.steps[-1].offset
                stranger = epoch * newer
        return Tail(out.last_seq, stranger=stranger)

    def _fill_with(self, seq: int, short: int) -> bool:
        if short > 64:
            return False
        if len(self._run) < short:
            rows = self._vehicle.ledger.rows
            epoch = self.appender.epoch
            known = [rows[key] for key in rows if key[:2] == (self.name, epoch) and key[2] <= seq]
            self._run = [Appended(message) for message in known[-1:]] * short
        return bool(self._run)

    def _jump(self, stream_seq: int) -> None:
        self._adopt(everything=True)
        for lane in self._vehicle.ledger.chain(self.name)[:-1]:
            if not lane.whole:
                self.confirmations.dispute(lane.epoch, "OUT is emptied")
        go_on_after, step = self.appender.jump(stream_seq)
        self._out.purge(go_on_after + 1)
        self.resends.lost()
        self._set_step(self._out.created, step, fresh=True)

    def _set_step(self, created: str, step: OffsetStep, *, fresh: bool = False) -> None:
        row = self.row
        if fresh:
            # As the ledger has it: all of a former epoch counts as sent.
            former = row.epoch != self._vehicle.ledger.epoch
            row.used_seq = row.last_seq if former else step.from_seq
            row.steps = Steps(created, [step])
        elif created != row.steps.created or step.offset != row.steps.last:
            row.steps = row.steps.with_step(created, step)

    def _send_new(self, now_s: float) -> None:
        appender, ledger = self.appender, self._vehicle.ledger
        seq, epoch = appender.next_seq, appender.epoch
        message = ledger.rows.get((self.name, epoch, seq))
        if message is None:
            self._vehicle.explain(self.name, epoch, seq, seq, "missing in the ledger")
            short = appender.pass_over(seq)
            if short and not self._fill_with(seq, short):
                self._jump(appender.stream_seq)
            return
        if seq > self.row.used_seq and epoch == ledger.epoch:
            self.row.used_seq = seq + USED_AHEAD
        expected = appender.send(seq, MESSAGE_BYTES, now_s)
        self._append(Appended(message), expected)
        owed = appender.outstanding_bytes
        if self.entered.is_current and self.pushing.pushes(self.name, seq, MESSAGE_BYTES, owed):
            self._vehicle.push(message)

    def _begin_run(self, now_s: float) -> None:
        work = self.resends.next_run()
        rows = list(self._rows_again(work))
        appender = self.appender
        if rows:
            self._set_step(appender.steps.created, appender.run_step(len(rows)))
        self.resends.took(work.hi)
        if rows:
            self._run = rows
            appender.begin_run(len(rows))
            last, size = appender.stream_seq + len(rows), MESSAGE_BYTES * len(rows)
            self.resends.sent(work, len(rows), size, last, now_s)

    def _rows_again(self, work: Work) -> Iterator[Appended]:
        for offset, seq in enumerate(range(work.lo, work.hi + 1)):
            row = self._vehicle.ledger.rows.get((self.name, work.epoch, seq))
            if row is not None:
                yield Appended(row)
            elif found := self._out.messages.get(work.stream_seq + offset):
                yield found

    def _append(self, appended: Appended, expected: int) -> None:
        random, appender = self._vehicle.random, self.appender
        chance = random.random() if self._vehicle.faulty else 1.0
        if chance < 0.01:
            return  # it never got there; nor will an answer
        stored = self._out.append(appended, expected if self._vehicle.expects else None)
        if chance < 0.03:
            return  # it did, but the answer is lost
        if stored is None:
            appender.refused(appender.generation)
        else:
            appender.answered(appender.generation, stored)
