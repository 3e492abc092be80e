"""One lane's way from the ledger to its OUT stream: the shell around `appender.Appender`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.commit.epochs import Verdict
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.leaf.streams import out_consumer_config, out_stream, out_stream_config
from backhaul_agent.ledger.rows import ROW_BYTES, LaneStep, Quarantine
from backhaul_agent.ledger.system_events import receipt
from backhaul_agent.uplink.adoption import Adoption, Held
from backhaul_agent.uplink.appender import Appender, Limits, State, Tail, Turn
from backhaul_agent.uplink.confirmations import OVER, Confirmations
from backhaul_agent.uplink.epoch_order import choose
from backhaul_agent.uplink.out_stream import EPOCH_HEADER, NEXT_HEADER, OutStream
from backhaul_agent.uplink.resend import RUN_BYTES, Resends
from backhaul_agent.uplink.resend_requests import Holes
from backhaul_codec import CodecError
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.placed import check_placed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.clock import Clock
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.lanes import Lane as LaneState
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Row
    from backhaul_agent.ledger.sequence_offsets import Step
    from backhaul_agent.uplink.confirmations import Claim
    from backhaul_agent.uplink.resend import Ask, Work

READ_ROWS = 64
USED_AHEAD = 1024  # how many seqs are recorded as sent at a time
SEQ_MAX = (1 << 62) - 1
HOLE_MAX = 4096  # seqs explained in one go
RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
log = structlog.get_logger("lane")


class PublishAnswer(msgspec.Struct):
    """What the server says to an append."""

    seq: int = 0
    error: msgspec.Raw = msgspec.Raw()


_decode_answer = msgspec.json.Decoder(PublishAnswer).decode


class Lane:
    """Appends one lane's messages while there is a connection; lives as long as the daemon.

    What is left of former epochs goes first, each to its end (see `uplink.epoch_order`).
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        writer: Writer,
        config: Config,
        clock: Clock,
        machine: str = "",
    ) -> None:
        self.name = name
        self.stream = out_stream(name)
        self.last_error = ""
        self.foreign_messages = 0
        self._ledger = ledger
        self._writer = writer
        self._config = config
        self._clock = clock
        # Half of the stream may be above the watermark: "discard old" then never reaches it.
        outstanding = config.lane_bytes_max(name) // 2
        self._limits = Limits(outstanding_bytes=outstanding)
        self._epochs = writer.gate.epochs
        self.resends = Resends(config.lane_bytes_max(name) // 8)
        self.holes = Holes(
            *(name, ledger, writer, clock, self.resends, self._turn_of, self._look), machine
        )
        self.adoption = Adoption(name, ledger, writer)
        self.confirmations = Confirmations(name, ledger, writer)
        self._rows: deque[Row] = deque()
        self._run: list[Row] = []  # what is being appended again
        self._noted: Step | None = None  # the step that was recorded last
        self._used_noted = 0
        self._ahead = 0  # the sequence that a durable gone astray stands at
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()  # an answer came, or the tail was read
        self._finished: set[int] = set()  # former epochs that this connection has seen the end of
        self._entered = ledger.lanes[name]
        self.appender = self._appender_of(self._entered)

    def on_commit(self) -> None:
        """Learn that the ledger has grown, that more of it may leave, or that an epoch is over."""
        state = self._state
        self.appender.committed(state.ready_seq, state.last_seq)
        if state.confirmed > self.appender.confirmed:
            # Heard beside IN, as of an epoch that is over, or while the lane was in another.
            self.appender.set_watermark(state.confirmed)
            self.appender.set_watermark(state.watermark)
        self._wake.set()

    def owed(self) -> tuple[int, int]:
        """Return the last seq of this epoch that is in OUT, and how far the hub has confirmed it."""
        if self.appender.state is not State.RUNNING or self.appender.epoch != self._ledger.epoch:
            return 0, 0
        return self.appender.appended, self.appender.watermark

    def on_ask(self, ask: Ask) -> None:
        """Learn what the hub asks for again."""
        self._claim(ask.epoch, max((hi for _, hi in ask.ranges), default=0))
        self.holes.ask(ask)
        self._wake.set()

    def _look(self) -> None:
        self._wake.set()

    def _turn_of(self, epoch: int) -> int | None:
        """Return the last seq of an epoch whose turn has come; None while the lane does not run."""
        if self.appender.state is not State.RUNNING:
            return None
        if epoch == self.appender.epoch:
            return self.appender.position
        if epoch in self.confirmations.disputed:
            return None  # what is compared with the hub's is not sent again meanwhile
        epochs = [lane.epoch for lane in self._chain()]
        later = epoch in epochs and epochs.index(epoch) > epochs.index(self._state.epoch)
        return 0 if later else SEQ_MAX

    def on_watermark(self, epoch: int, claim: Claim) -> None:
        """Learn how far the hub holds everything of an epoch; judged and recorded by and by."""
        if self.adoption.heard(epoch, Held(claim.seq, claim.hash, claim.fork == OVER)):
            self._wake.set()
        if self._ledger.lane(self.name, epoch) is None:
            return
        self._claim(epoch, claim.seq)
        self.confirmations.claim(epoch, claim)
        self._wake.set()

    def append_again(self, works: Iterable[Work]) -> None:
        """Append messages again in their places, without being asked."""
        for work in works:
            self.resends.drain(work)
        self._wake.set()

    def past(self, epoch: int) -> bool:
        """Whether all of a former epoch that OUT was to have stands there, or did before it was purged."""
        return (
            self.appender.state is State.RUNNING
            and self.appender.epoch == self._ledger.epoch != epoch
            and not self.resends.pending
        )

    async def _confirm(self) -> None:
        """Record what the hub has proven to hold."""
        for epoch, seq in await self.confirmations.judge():
            if epoch == self.appender.epoch:
                self.appender.set_watermark(seq)
            self._writer.set_watermark(self.name, seq, epoch)

    def _claim(self, epoch: int, seq: int) -> bool:
        """Take in that somebody knows ``seq`` of an epoch; return whether that cannot be."""
        if epoch != self._ledger.epoch or seq <= self._ledger.lanes[self.name].last_seq:
            return False
        if epoch == self.appender.epoch:
            self.appender.claim(seq)
        self._epochs.behind(f"the hub knows seq {seq} of {self.name}")
        self._writer.wake()
        return True

    def on_passed(self, stream_seq: int) -> None:
        """Learn that the hub passes over all up to ``stream_seq``, which OUT has not reached."""
        self._ahead = max(self._ahead, stream_seq)
        self.appender.connected()
        self._wake.set()

    async def run(self, client: Client, jetstream: JetStream) -> None:
        """Append for as long as this connection lives (the caller cancels)."""
        inbox = client.new_inbox()
        answers = await client.subscribe(f"{inbox}.*.*", cb=self._on_answer)
        out = OutStream(jetstream, self.stream)
        answering = asyncio.create_task(self.holes.run(out, self._config.device.token))
        self.appender.connected()
        retry_s = RETRY_S_MIN
        self._finished.clear()  # this may be another leaf server, or one that went back in time
        try:
            while True:
                try:
                    await self._prepare(jetstream)
                    while True:
                        await self._step(client, out, inbox)
                        retry_s = RETRY_S_MIN
                except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                    self._trouble(str(error) or type(error).__name__)
                    self.appender.connected()
                    await asyncio.sleep(retry_s)
                    retry_s = min(RETRY_S_MAX, retry_s * 2)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self.appender.disconnected()
            if not client.is_closed:
                await answers.unsubscribe()

    async def drained(self) -> None:
        """Wait until everything committed is in the stream, or the lane has halted."""
        while not (self.appender.done and self.appender.epoch == self._ledger.epoch):
            if self._epochs.verdict is Verdict.WAITING:
                return
            self._moved.clear()
            await self._moved.wait()

    @property
    def _state(self) -> LaneState:
        """What the ledger has of the lane in the epoch that is being appended."""
        self._entered = self._ledger.lane(self.name, self.appender.epoch) or self._entered
        return self._entered

    def _appender_of(self, state: LaneState) -> Appender:
        appender = Appender(
            state.epoch,
            self._limits,
            opened_seq=state.last_seq,
            used_seq=min(state.used_seq, state.last_seq),
            steps=state.steps,
        )
        appender.committed(state.ready_seq)
        appender.set_watermark(state.confirmed)
        appender.set_watermark(state.watermark)
        return appender

    def _enter(self, state: LaneState) -> None:
        """Go on with another epoch of this lane; its place in the stream is to be found."""
        before, self._entered = self.appender, state
        self.appender = self._appender_of(state)
        self.appender.generation = before.generation
        self.appender.connected()
        self._rows.clear()
        self._run, self._noted, self._used_noted = [], None, 0

    def _chain(self) -> list[LaneState]:
        closed = (lane for (name, _), lane in self._ledger.closed.items() if name == self.name)
        return [*sorted(closed, key=lambda lane: lane.id), self._ledger.lanes[self.name]]

    def _is_over(self) -> bool:
        """Whether nothing more of a former epoch is to be appended in its turn."""
        if self.appender.epoch == self._ledger.epoch:
            return False
        appender = self.appender
        at_end = appender.done and appender.appended >= self._state.last_seq
        return (at_end and appender.made_whole) or appender.state is State.BEHIND

    async def _prepare(self, jetstream: JetStream) -> None:
        if await jetstream.ensure_stream(out_stream_config(self._config, self.name)):
            log.info("stream set up", stream=self.stream)
        consumer = out_consumer_config(self._config, self.name, self._ledger.lanes)
        if await jetstream.ensure_consumer(self.stream, consumer):
            log.info("consumer set up", stream=self.stream, consumer=consumer["durable_name"])

    async def _step(self, client: Client, out: OutStream, inbox: str) -> None:
        """Do what can be done now, then wait for something to happen."""
        self._wake.clear()
        if self.confirmations.due:
            await self._confirm()
        if self.adoption.due:
            await self.adoption.take_in(out)
            self.appender.connected()
        if self._is_over():
            self._finished.add(self.appender.epoch)
            self._enter(self._ledger.lanes[self.name])
        if self.appender.state is State.SEEKING:
            await self._seek(out)
        await self._fill(client, out, inbox)
        self._moved.set()
        if self.appender.state is State.SEEKING or self._is_over():
            return
        if self.last_error and self.appender.state is State.RUNNING:
            log.info("lane runs again", lane=self.name, after=self.last_error)
            self.last_error = ""
        due_s = self.appender.answer_due_s()
        try:
            async with asyncio.timeout(due_s and max(0.0, due_s - self._clock.monotonic_s())):
                await self._wake.wait()
        except TimeoutError:
            self.appender.tick(self._clock.monotonic_s())

    async def _seek(self, out: OutStream) -> None:
        """Read where the stream ends, and go on after it."""
        current = self._ledger.lanes[self.name]
        tail = await out.tail(current.epoch, self._ledger.epochs, current.steps)
        self.foreign_messages += out.foreign_messages
        if current.epoch == self._ledger.epoch:
            seq = (tail.seq or 0) if tail.epoch == current.epoch else 0
            self._epochs.out_knows(self.name, seq, stranger=bool(tail.stranger))
            self._writer.wake()
        known = self._ledger.lane(self.name, tail.epoch or 0)
        beyond = known is not None and (tail.seq or 0) > known.last_seq
        # Also where nothing shows: a run of the agent before may have left it undone.
        if not self.adoption.looked or beyond or out.foreign_messages:
            await self.adoption.look(out)
        committed = choose(self._chain(), tail, out.created, self._finished)
        if committed.epoch != self.appender.epoch:
            self._enter(committed)
        if tail.epoch != committed.epoch:
            tail = Tail(tail.stream_seq)
        appender = self.appender
        appender.committed(committed.ready_seq, committed.last_seq)
        if self._ahead > tail.stream_seq:
            await self._jump(out, self._ahead)
            return
        self._ahead = 0
        start = appender.start(tail, out.created)
        if start.short and not self._fill_with(start.short):
            await self._jump(out, tail.stream_seq)
            return
        if start.new_stream:
            self.resends.lost()
        await self._set_step(start.created, start.step, fresh=start.new_stream)
        self._use_ahead(start.step.from_seq)
        sizes = await self._ledger.sizes(committed, appender.confirmed + 1, start.step.from_seq)
        if appender is not self.appender or self._ahead:
            return  # the hub has passed more meanwhile: looked at again
        appender.sought(tail, start, sizes)
        self._rows.clear()
        if appender.state is State.RUNNING:
            self.holes.look()
            log.info(
                "lane goes on", lane=self.name, epoch=appender.epoch,
                after_seq=start.step.from_seq, stream_seq=tail.stream_seq,
            )  # fmt: skip

    def _fill_with(self, short: int) -> bool:
        """Whether the rest of an interrupted run is what uses up the sequences that are short.

        Anything else would do as well for the seqs, but not for the hub: it looks at what a store
        that went back delivers as old, so to jump is safer.
        """
        return len(self._run) >= short

    async def _jump(self, out: OutStream, stream_seq: int) -> None:
        """Empty the stream and go on beyond every sequence it may have had.

        What the ledger does not know is taken into it before. What former epochs still owe is compared with
        what the hub holds: it is not in OUT any more.
        """
        await self.adoption.take_in(out, everything=True)
        for lane in self._chain()[:-1]:
            if not lane.whole:
                self.confirmations.dispute(lane.epoch, "OUT is emptied")
        go_on_after, step = self.appender.jump(stream_seq)
        log.warning(
            "the leaf's store went back in time", stream=self.stream, stream_seq=stream_seq,
            go_on_after=go_on_after,
        )  # fmt: skip
        await out.purge(go_on_after + 1)
        self.resends.lost()
        await self._set_step(out.created, step, fresh=True)

    async def _set_step(self, created: str, step: Step, *, fresh: bool = False) -> None:
        """Have a step recorded, durably, unless it says nothing new."""
        known, epoch = self._state.steps, self.appender.epoch
        if fresh:
            self._used_noted = 0
        if fresh or created != known.created or step.offset != known.last:
            self._noted = step
            await self._writer.set_step(LaneStep(self.name, created, step, fresh, epoch))

    def _use_ahead(self, seq: int) -> None:
        """Have it recorded in time that the next seqs may be sent, so that nothing waits for it."""
        state = self._state
        if state.epoch != self._ledger.epoch:
            return  # all of a former epoch counts as sent
        if seq + USED_AHEAD // 2 > max(self._used_noted, state.used_seq):
            self._used_noted = seq + USED_AHEAD
            self._writer.note_used(self.name, self._used_noted)

    async def _fill(self, client: Client, out: OutStream, inbox: str) -> None:
        """Send until the window is full or there is nothing to send."""
        while (turn := self.appender.turn(asked=self.resends.ready)) is not None:
            if turn is Turn.NEW:
                await self._send_new(client, out, inbox)
            elif turn is Turn.AGAIN:
                await self._send_again(client, inbox)
            else:
                await self._begin_run(out)
            heed_cancel()
        steps = self.appender.steps
        if steps.steps and steps.steps[-1] != self._noted:
            # Seqs were passed over. Not to know that costs a few repeats, so nobody waits for it.
            self._noted = steps.steps[-1]
            epoch = self.appender.epoch
            self._writer.note_step(LaneStep(self.name, steps.created, self._noted, epoch=epoch))

    async def _send_new(self, client: Client, out: OutStream, inbox: str) -> None:
        appender, seq = self.appender, self.appender.next_seq
        last_seq = appender.last_seq  # before the read: what is committed during it is no hole
        row = await self._row(seq)
        if appender.turn(asked=False) is not Turn.NEW or appender.next_seq != seq:
            return  # an answer or a watermark came in while we read
        if row is None or row.seq != seq:
            await self._pass_over(
                out, await self._explain_hole(seq, row.seq - 1 if row else last_seq)
            )
            return
        if flaw := self._flaw(row):
            await self._quarantine(appender.epoch, seq, seq, flaw)
            await self._pass_over(out, seq)
            return
        if seq > self._state.used_seq:
            await self._writer.set_used(self.name, seq + USED_AHEAD)
            return
        self._use_ahead(seq)
        self._rows.popleft()
        expected = appender.send(seq, _size(row), self._clock.monotonic_s())
        await self._append(client, inbox, row, expected, {})

    async def _send_again(self, client: Client, inbox: str) -> None:
        """Append the next message of a run; its headers say what its own seq does not."""
        appender = self.appender
        row = self._run[-appender.again]
        headers = {NEXT_HEADER: str(appender.position), EPOCH_HEADER: str(appender.epoch)}
        expected = appender.send_again(_size(row), self._clock.monotonic_s())
        await self._append(client, inbox, row, expected, headers)

    async def _append(
        self, client: Client, inbox: str, row: Row, expected: int, headers: dict[str, str]
    ) -> None:
        await client.publish(
            row.subject,
            row.body,
            reply=f"{inbox}.{self.appender.generation}.{expected + 1}",
            headers={"Nats-Expected-Last-Sequence": str(expected), **headers},
        )

    async def _begin_run(self, out: OutStream) -> None:
        """Read the next run of what the hub asked for, and make its step durable."""
        appender, work = self.appender, self.resends.next_run()
        rows, upto = await self._rows_again(out, work)
        if rows:
            await self._set_step(appender.steps.created, appender.run_step(len(rows)))
        if appender.turn(asked=self.resends.ready) is not Turn.RUN:
            return  # the connection went: the run is looked at again
        if self.resends.next_run() != work:
            return  # another request came
        self.resends.took(upto)
        if rows:
            self._run = rows
            appender.begin_run(len(rows))
            self._noted = appender.steps.steps[-1]
            last, size = appender.stream_seq + len(rows), sum(map(_size, rows))
            now_s = self._clock.monotonic_s()
            self.resends.sent(work._replace(hi=upto), len(rows), size, last, now_s)
        self.holes.look()

    async def _pass_over(self, out: OutStream, seq: int) -> None:
        """Go on after seqs that will never be sent."""
        self._rows.clear()
        if self.appender.state is not State.RUNNING:
            return  # looked at again, from where the stream ends
        short = self.appender.pass_over(seq)
        if short:
            await self._jump(out, self.appender.stream_seq)

    async def _rows_again(self, out: OutStream, work: Work) -> tuple[list[Row], int]:
        """Return what is there of a run, within its size, and the last seq that speaks for."""
        rows: list[Row] = []
        size = 0
        if work.stream_seq:
            found = await out.rows(work)
        else:
            count = work.hi - work.lo + 1
            found = await self._ledger.read(self.name, work.lo, count, work.epoch)
        for row in found:
            if row.seq > work.hi or row.boot:
                break
            if flaw := self._flaw(row, work.epoch):
                await self._quarantine(work.epoch, row.seq, row.seq, flaw)
                continue
            size += _size(row)
            if rows and size > RUN_BYTES:
                return rows, row.seq - 1
            rows.append(row)
        return rows, work.hi

    async def _row(self, seq: int) -> Row | None:
        """Return the first row from ``seq`` on; what was read ahead is kept in memory."""
        while self._rows and self._rows[0].seq < seq:
            self._rows.popleft()
        if not self._rows or self._rows[0].boot:  # its stamps were put right after it was read
            epoch, ready_seq = self.appender.epoch, self._state.ready_seq
            rows = await self._ledger.read(self.name, seq, READ_ROWS, epoch)
            # What may not leave yet is changed until it may.
            self._rows = deque(row for row in rows if row.seq <= ready_seq)
        return self._rows[0] if self._rows else None

    def _flaw(self, row: Row, epoch: int = 0) -> str:
        """Return what is wrong with a row read back, or nothing: bits rot, disks lie."""
        try:
            place = parse_leaf(row.subject)
            header = check_placed(place, row.body)
        except (CodecError, SubjectError) as error:
            return str(error)
        if place.lane != self.name:
            return f"{row.subject!r} does not belong here"
        if (header.epoch, header.seq) != (epoch or self.appender.epoch, row.seq):
            return f"it is stamped epoch {header.epoch} seq {header.seq}"
        return ""

    async def _explain_hole(self, lo: int, hi: int) -> int:
        """Give those seqs that are not there, and that nobody explained yet, a receipt.

        Returns up to where that went.
        """
        hi = min(hi, lo + HOLE_MAX - 1)
        known = await self._ledger.explained(self._state, lo, hi)
        missing = [seq for seq in range(lo, hi + 1) if seq not in known]
        if missing:
            reason = "missing in the ledger"
            await self._quarantine(self.appender.epoch, missing[0], missing[-1], reason, *missing)
        return hi

    async def _quarantine(self, epoch: int, lo: int, hi: int, reason: str, *seqs: int) -> None:
        """Set rows aside and tell the hub, durably, that they will never come."""
        log.error("ledger row quarantined", lane=self.name, lo=lo, hi=hi, reason=reason)
        rows = [Quarantine(self.name, seq, reason, epoch) for seq in seqs or (lo,)]
        state = self._ledger.lane(self.name, epoch)
        chain = await self._ledger.hash_at(state, hi) if state is not None else None
        note = receipt(self.name, epoch, lo, hi, f"corrupt: {reason}", self._clock.time_ns(), chain)
        await self._writer.set_aside(rows, [note])

    async def _on_answer(self, message: Msg) -> None:
        _, generation, stream_seq = message.subject.rsplit(".", 2)
        try:
            answer = _decode_answer(message.data)
            stored = bool(answer.seq) and not answer.error
        except msgspec.DecodeError:
            stored = False  # no responders: the stream is gone
        if stored:
            self.appender.answered(int(generation), int(stream_seq))
        else:
            if message.data and b"wrong last sequence" not in message.data:
                self._trouble(f"append refused: {message.data[:200].decode(errors='replace')}")
            self.appender.refused(int(generation))
        self._wake.set()
        self._moved.set()

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes or heals."""
        if error != self.last_error:
            log.error("lane does not run", lane=self.name, error=error)
        self.last_error = error


def _size(row: Row) -> int:
    return len(row.body) + len(row.subject) + ROW_BYTES
