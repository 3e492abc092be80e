"""A model of the ledger, and of the shell that drives a lane's real cores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backhaul_agent.appender import Appender, Limits, State, Tail, Turn
from backhaul_agent.epochs import Epochs
from backhaul_agent.lane_chain import choose
from backhaul_agent.ledger_lanes import Lane, opened
from backhaul_agent.resend import Ask, Resends, Work
from backhaul_agent.steps import Step, Steps
from backhaul_codec.merge import HeadKey, Heads
from tests.simulation.models import Appended, Message, OutModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backhaul_codec import Point
    from tests.simulation.vehicle import Vehicle

LANES = ("live", "bulk")
SEQ_MAX = 1 << 62
Known = dict[str, tuple[int, int]]
"""What the hub knows of an epoch: of each lane the highest seq, and the watermark."""
LIMITS = Limits(window_messages=6, answer_s=5.0)
USED_AHEAD = 8
MESSAGE_BYTES = 100
RUN_MESSAGES = 4


@dataclass
class Ledger:
    """Everything that survives on the vehicle's disk; a commit is atomic."""

    epoch: int
    lanes: dict[str, Lane] = field(default_factory=dict)
    closed: dict[tuple[str, int], Lane] = field(default_factory=dict)
    rows: dict[tuple[str, int, int], Message] = field(default_factory=dict)
    heads: dict[HeadKey, Point] = field(default_factory=dict)
    in_seq: int = 0

    def __post_init__(self) -> None:
        self.lanes = opened([Lane(0, name, 0) for name in LANES], self.epoch, len(self.closed))

    @property
    def epochs(self) -> set[int]:
        """The epochs that this ledger knows."""
        return {self.epoch, *(epoch for _, epoch in self.closed)}

    def lane(self, name: str, epoch: int) -> Lane | None:
        """Return a lane of any epoch."""
        return self.lanes[name] if epoch == self.epoch else self.closed.get((name, epoch))

    def chain(self, name: str) -> list[Lane]:
        """Return a lane's epochs, the current one last."""
        closed = (lane for (each, _), lane in self.closed.items() if each == name)
        return [*sorted(closed, key=lambda lane: lane.id), self.lanes[name]]

    def open(self, epoch: int) -> None:
        """Begin a new epoch."""
        for lane in self.lanes.values():
            lane.used_seq = lane.last_seq
            self.closed[lane.name, lane.epoch] = lane
        self.epoch = epoch
        self.lanes = opened(self.lanes.values(), epoch, len(self.closed))


class Cores:
    """The classes under test; a mutation puts another in place of one."""

    appender: type[Appender] = Appender
    resends: type[Resends] = Resends
    heads: type[Heads] = Heads
    epochs: type[Epochs] = Epochs
    choose: Callable[..., Lane] = staticmethod(choose)


class LaneShell:
    """Does for one lane what `backhaul_agent.lane.Lane` does, without its asyncio and its NATS."""

    def __init__(self, vehicle: Vehicle, name: str) -> None:
        self.name = name
        self._vehicle = vehicle
        self.appender = self._appender_of(vehicle.ledger.lanes[name])
        self._finished: set[int] = set()
        self.resends = vehicle.cores.resends()
        self._run: list[Appended] = []
        self._seen_id: int | str | None = None

    @property
    def _row(self) -> Lane:
        row = self._vehicle.ledger.lane(self.name, self.appender.epoch)
        assert row is not None
        return row

    @property
    def _out(self) -> OutModel:
        return self._vehicle.out(self.name)

    def connect(self) -> None:
        """Note a new connection to the leaf server."""
        self._finished.clear()
        self.appender.connected()

    def disconnect(self) -> None:
        """Note that the connection is gone."""
        self.appender.disconnected()

    def work(self, turns: int, now_s: float) -> None:
        """Do what can be done, at most so many turns."""
        self.resends.flowed(self._out.floor, now_s)
        for _ in range(turns):
            if self._is_over():
                self._finished.add(self.appender.epoch)
                self._enter(self._vehicle.ledger.lanes[self.name])
            self.appender.committed(self._row.last_seq)
            if self.appender.state is State.SEEKING:
                self._seek()
                if not self._vehicle.goes_on:
                    return
                continue
            if self.appender.state is State.BEHIND:
                return
            turn = self.appender.turn(asked=self.resends.ready)
            if turn is None:
                break
            if turn is Turn.NEW:
                self._send_new(now_s)
            elif turn is Turn.AGAIN:
                appended = self._run[-self.appender.again]
                position = (self.appender.epoch, self.appender.position)
                expected = self.appender.send_again(MESSAGE_BYTES, now_s)
                self._append(Appended(appended.message, position), expected)
            else:
                self._begin_run(now_s)
        self.appender.tick(now_s)

    def ask(self, ask: Ask) -> None:
        """Take up what the hub asks for again."""
        if ask.id == self._seen_id:
            return
        self._seen_id = ask.id
        ledger = self._vehicle.ledger
        if ask.ranges and self.claims(ask.epoch, ask.ranges[-1][1]):
            return
        works, missing = [], []
        asked = ledger.lane(self.name, ask.epoch)
        top = SEQ_MAX
        if asked is not None and asked.id >= self._row.id:  # what is above goes in its turn
            top = self.appender.position if asked is self._row else 0
        in_out = {
            (each.message.epoch, each.message.seq): at for at, each in self._out.messages.items()
        }
        for low, high in self.resends.not_flying(ask):
            for seq in range(low, min(high, top) + 1):
                if (self.name, ask.epoch, seq) in ledger.rows:
                    works.append(Work(ask.epoch, seq, seq))
                elif (ask.epoch, seq) in in_out:
                    works.append(Work(ask.epoch, seq, seq, in_out[ask.epoch, seq]))
                else:
                    missing.append(seq)
        self.resends.begin(works)
        for seq in missing:
            self._vehicle.commit("live", "receipt", (self.name, ask.epoch, seq, seq, "not kept"))

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

    def _appender_of(self, row: Lane) -> Appender:
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

    def _enter(self, row: Lane) -> None:
        self.appender = self._appender_of(row)
        self._run = []
        self.appender.connected()

    def _is_over(self) -> bool:
        if self.appender.epoch == self._vehicle.ledger.epoch:
            return False
        at_end = self.appender.done and self.appender.made_whole
        return at_end or self.appender.state is State.BEHIND

    def _seek(self) -> None:
        out = self._out
        tail = self.look_at_out()
        if not self._vehicle.goes_on:
            return
        row = self._vehicle.cores.choose(
            self._vehicle.ledger.chain(self.name), tail, out.created, self._finished
        )
        if row.epoch != self.appender.epoch:
            self._enter(row)
        if tail.epoch != row.epoch:
            tail = Tail(tail.stream_seq)
        appender = self.appender
        appender.committed(row.last_seq)
        start = appender.start(tail, out.created)
        if start.short and not self._fill_with(start.step.from_seq, start.short):
            self._jump(tail.stream_seq)
            return
        self._set_step(start.created, start.step, fresh=start.new_stream)
        appender.sought(tail, start, [])

    def _tail(self) -> Tail:
        out, ledger = self._out, self._vehicle.ledger
        stranger = 0
        for at in sorted(out.messages, reverse=True)[:64]:
            appended = out.messages[at]
            epoch, seq = appended.position or (appended.message.epoch, appended.message.seq)
            if epoch in ledger.epochs:
                return Tail(out.last_seq, epoch, seq, stranger)
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
        go_on_after, step = self.appender.jump(stream_seq)
        self._out.purge(go_on_after + 1)
        self.resends.lost()
        self._set_step(self._out.created, step, fresh=True)

    def _set_step(self, created: str, step: Step, *, fresh: bool = False) -> None:
        row = self._row
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
            self._vehicle.commit(
                "live", "receipt", (self.name, epoch, seq, seq, "missing in the ledger")
            )
            short = appender.pass_over(seq)
            if short and not self._fill_with(seq, short):
                self._jump(appender.stream_seq)
            return
        if seq > self._row.used_seq and epoch == ledger.epoch:
            self._row.used_seq = seq + USED_AHEAD
        expected = appender.send(seq, MESSAGE_BYTES, now_s)
        self._append(Appended(message), expected)

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
