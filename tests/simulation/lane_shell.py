"""A model of the ledger, and of the shell that drives a lane's real cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets
from backhaul_agent.uplink.adoption import HeldLane
from backhaul_agent.uplink.appender import Appender, AppenderState, AppendTurn, Tail
from backhaul_agent.uplink.confirmations import OVER
from backhaul_agent.uplink.epoch_sync import PASSED_MARGIN
from backhaul_agent.uplink.pushing import PushRule
from tests.simulation.lane_debts import LaneDebts
from tests.simulation.lane_parts import (
    LIMITS,
    MESSAGE_BYTES,
    USED_AHEAD,
    OutReader,
    Writer,
)
from tests.simulation.models import Appended, at_once
from tests.simulation.pushing import Entered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.uplink.confirmations import Claim
    from backhaul_agent.uplink.resend import ResendAsk, Work
    from tests.simulation.vehicle import Vehicle


class LaneShell(LaneDebts):
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
        return (at_end and self.appender.gap_free) or self.appender.state is AppenderState.BEHIND

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
            row.steps = SequenceOffsets(created, [step])
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
