"""One lane's way from the ledger to its OUT stream: the shell around `appender.Appender`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard, heed_cancel
from backhaul_agent.commit.epochs import Verdict
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.leaf.streams import out_consumer_config, out_stream, out_stream_config
from backhaul_agent.uplink.adoption import Adoption, HeldLane
from backhaul_agent.uplink.appender import AppenderState, AppendTurn, Limits, Tail
from backhaul_agent.uplink.confirmations import OVER, Confirmations
from backhaul_agent.uplink.epoch_order import choose
from backhaul_agent.uplink.lane_epoch import LaneEpoch
from backhaul_agent.uplink.lane_rows import LaneRows, size_of
from backhaul_agent.uplink.out_stream import EPOCH_HEADER, NEXT_HEADER, Appends, OutStream
from backhaul_agent.uplink.pushing import PushRule
from backhaul_agent.uplink.resend import Resends
from backhaul_agent.uplink.resend_requests import Holes
from backhaul_codec.protocol.push import push_subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.lanes import CommittedLane as LaneState
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow
    from backhaul_agent.uplink.appender import Appender
    from backhaul_agent.uplink.confirmations import Claim
    from backhaul_agent.uplink.resend import ResendAsk, Work
    from backhaul_runtime.clock import Clock

RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
log = structlog.get_logger("lane")


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
        self._no_room = False  # the leaf refused the last message, wherever it was to stand
        self._ledger = ledger
        self._writer = writer
        self._config = config
        self._clock = clock
        # Half of the stream may be above the watermark: "discard old" then never reaches it.
        outstanding = config.lane_bytes_max(name) // 2
        self.entered = LaneEpoch(name, ledger, writer, Limits(outstanding_bytes=outstanding))
        self._epochs = writer.gate.epochs
        self._wake = asyncio.Event()
        self.resends = Resends(config.lane_bytes_max(name) // 8)
        self.holes = Holes(
            *(name, ledger, writer, clock, self.resends, self._turn_of, self._wake.set), machine
        )
        self.adoption = Adoption(name, ledger, writer)
        self.confirmations = Confirmations(name, ledger, writer)
        self._rows = LaneRows(name, ledger, writer, clock)
        self._run: list[LedgerRow] = []  # what is being appended again
        self._ahead = 0  # the sequence that a durable gone astray stands at
        self._moved = asyncio.Event()  # an answer came, or the tail was read
        self.pushing = PushRule()
        """Says of a message whether it is pushed as well."""
        self._finished: set[int] = set()  # former epochs that this connection has seen the end of

    @property
    def appender(self) -> Appender:
        """Return the appender of the epoch whose turn it is."""
        return self.entered.appender

    def on_commit(self) -> None:
        """Learn that the ledger has grown, that more of it may leave, or that an epoch is over."""
        self.entered.on_commit()
        self._wake.set()

    def status(self) -> dict[str, Any]:
        """Return the lane's part of the status: seqs of the ledger, and the state of appending."""
        own = {"foreign_messages": self.foreign_messages, "last_error": self.last_error}
        return self.entered.status() | own

    def on_ask(self, ask: ResendAsk) -> None:
        """Learn what the hub asks for again."""
        self._claim(ask.epoch, max((hi for _, hi in ask.ranges), default=0))
        self.holes.ask(ask)
        self._wake.set()

    def _turn_of(self, epoch: int) -> int | None:
        return self.entered.turn_of(epoch, self.confirmations.disputed)

    def on_watermark(self, epoch: int, claim: Claim) -> None:
        """Learn how far the hub holds everything of an epoch; judged and recorded by and by."""
        if self.adoption.heard(epoch, HeldLane(claim.seq, claim.hash, claim.fork == OVER)):
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
        return self.entered.runs and epoch != self._ledger.epoch and not self.resends.pending

    async def _confirm(self) -> None:
        """Record what the hub has proven to hold."""
        for epoch, seq in await self.confirmations.judge():
            if epoch == self.appender.epoch:
                self.appender.set_watermark(seq)
            self._writer.set_watermark(self.name, seq, epoch)

    def _claim(self, epoch: int, seq: int) -> None:
        """Take in that somebody knows ``seq`` of an epoch: where that cannot be, the epoch is over."""
        if epoch == self._ledger.epoch and seq > self._ledger.lanes[self.name].last_seq:
            if self.entered.is_current:
                self.appender.claim(seq)
            self._epochs.behind(f"the hub knows seq {seq} of {self.name}")
            self._writer.wake()

    def on_passed(self, stream_seq: int) -> None:
        """Learn that the hub passes over all up to ``stream_seq``, which OUT has not reached."""
        self._ahead = max(self._ahead, stream_seq)
        self.appender.connected()
        self._wake.set()

    async def run(self, client: Client, jetstream: JetStream) -> None:
        """Append for as long as this connection lives (the caller cancels)."""
        device = self._config.device
        appends = Appends(client, self._on_answer, push_subject(device.id, device.token, ""))
        await appends.start()
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
                        await self._step(out, appends)
                        if not self._no_room:
                            retry_s = RETRY_S_MIN
                        elif self.appender.state is AppenderState.SEEKING:
                            # It would refuse the next one as fast as it can be sent.
                            await asyncio.sleep(retry_s)
                            retry_s = min(RETRY_S_MAX, retry_s * 2)
                except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                    self._trouble(str(error) or type(error).__name__)
                    self.appender.connected()
                    await asyncio.sleep(retry_s)
                    retry_s = min(RETRY_S_MAX, retry_s * 2)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self.appender.disconnected()
            await appends.stop()

    async def drained(self) -> None:
        """Wait until everything committed is in the stream, or the lane has halted."""
        while not (self.appender.done and self.entered.is_current):
            if self._epochs.verdict is Verdict.WAITING:
                return
            self._moved.clear()
            await self._moved.wait()

    def _enter(self, state: LaneState) -> None:
        """Go on with another epoch of this lane; its place in the stream is to be found."""
        self.entered.enter(state)
        self._rows.clear()
        self._run = []

    async def _prepare(self, jetstream: JetStream) -> None:
        if await jetstream.ensure_stream(out_stream_config(self._config, self.name)):
            log.info("stream_created", stream=self.stream)
        consumer = out_consumer_config(self._config, self.name, self._ledger.lanes)
        if await jetstream.ensure_consumer(self.stream, consumer):
            log.info("consumer_created", stream=self.stream, consumer=consumer["durable_name"])

    async def _step(self, out: OutStream, appends: Appends) -> None:
        """Do what can be done now, then wait for something to happen."""
        self._wake.clear()
        if self.confirmations.due:
            await self._confirm()
        if self.adoption.due:
            await self.adoption.take_in(out)
            self.appender.connected()
        if self.entered.is_over:
            self._finished.add(self.appender.epoch)
            self._enter(self._ledger.lanes[self.name])
        if self.appender.state is AppenderState.SEEKING:
            await self._seek(out)
        await self._fill(out, appends)
        self._moved.set()
        if self.appender.state is AppenderState.SEEKING or self.entered.is_over:
            return
        runs = self.appender.state is AppenderState.RUNNING
        if self.last_error and runs and (self.appender.done or not self._no_room):
            log.info("lane_runs_again", lane=self.name, after=self.last_error)
            self.last_error, self._no_room = "", False
        due_s = self.appender.answer_due_s()
        wait_s = due_s and max(0.0, due_s - self._clock.monotonic_s())
        if not await heard(self._wake, wait_s):
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
        committed = choose(self.entered.chain(), tail, out.created, self._finished)
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
        # The rest of an interrupted run is all that may use up the sequences that are short. Anything
        # else would do for the seqs, but the hub looks at what a store that went back delivers as old.
        if len(self._run) < start.short:
            await self._jump(out, tail.stream_seq)
            return
        if start.new_stream:
            self.resends.lost()
        await self.entered.set_step(start.created, start.step, fresh=start.new_stream)
        self.entered.use_ahead(start.step.from_seq)
        sizes = await self._ledger.sizes(committed, appender.confirmed + 1, start.step.from_seq)
        if appender is not self.appender or self._ahead:
            return  # the hub has passed more meanwhile: looked at again
        appender.sought(tail, start, sizes)
        self._rows.clear()
        if appender.state is AppenderState.RUNNING:
            self.holes.look()
            log.info(
                "lane_goes_on", lane=self.name, epoch=appender.epoch,
                after_seq=start.step.from_seq, stream_seq=tail.stream_seq,
            )  # fmt: skip

    async def _jump(self, out: OutStream, stream_seq: int) -> None:
        """Empty the stream and go on beyond every sequence it may have had.

        What the ledger does not know is taken into it before. What former epochs still owe is compared with
        what the hub holds: it is not in OUT any more.
        """
        await self.adoption.take_in(out, everything=True)
        for lane in self.entered.chain()[:-1]:
            if not lane.whole:
                self.confirmations.dispute(lane.epoch, "OUT is emptied")
        go_on_after, step = self.appender.jump(stream_seq)
        log.warning(
            "leaf_store_went_back", stream=self.stream, stream_seq=stream_seq,
            go_on_after=go_on_after,
        )  # fmt: skip
        await out.purge(go_on_after + 1)
        self.resends.lost()
        await self.entered.set_step(out.created, step, fresh=True)

    async def _fill(self, out: OutStream, appends: Appends) -> None:
        """Send until the window is full or there is nothing to send."""
        while (turn := self.appender.turn(asked=self.resends.ready)) is not None:
            if turn is AppendTurn.NEW:
                await self._send_new(out, appends)
            elif turn is AppendTurn.AGAIN:
                await self._send_again(appends)
            else:
                await self._begin_run(out)
            heed_cancel()
        self.entered.note_step()

    async def _send_new(self, out: OutStream, appends: Appends) -> None:
        appender, seq = self.appender, self.appender.next_seq
        last_seq = appender.last_seq  # before the read: what is committed during it is no hole
        row = await self._rows.first(self.entered.state, seq)
        if appender.turn(asked=False) is not AppendTurn.NEW or appender.next_seq != seq:
            return  # an answer or a watermark came in while we read
        if gone := await self._rows.pass_over(self.entered.state, seq, row, last_seq):
            await self._pass_over(out, gone)
            return
        assert row is not None
        if seq > self.entered.state.used_seq:
            await self.entered.use(seq)
            return
        self.entered.use_ahead(seq)
        size = size_of(row)
        expected = appender.send(seq, size, self._clock.monotonic_s())
        await appends.append(row, appender.generation, expected, {})
        owed = appender.outstanding_bytes
        if self.entered.is_current and self.pushing.pushes(self.name, seq, size, owed):
            await appends.push(row)

    async def _send_again(self, appends: Appends) -> None:
        """Append the next message of a run; its headers say what its own seq does not."""
        appender = self.appender
        row = self._run[-appender.again]
        headers = {NEXT_HEADER: str(appender.position), EPOCH_HEADER: str(appender.epoch)}
        expected = appender.send_again(size_of(row), self._clock.monotonic_s())
        await appends.append(row, appender.generation, expected, headers)
        if self.pushing.pushes_again(self.name, size_of(row)):
            await appends.push(row)
            self.resends.pushed(expected + 1)

    async def _begin_run(self, out: OutStream) -> None:
        """Read the next run of what the hub asked for, and make its step durable."""
        appender, work = self.appender, self.resends.next_run()
        rows, upto = await self._rows.again(out, work)
        if rows:
            await self.entered.set_step(appender.steps.created, appender.run_step(len(rows)))
        if appender.turn(asked=self.resends.ready) is not AppendTurn.RUN:
            return  # the connection went: the run is looked at again
        if self.resends.next_run() != work:
            return  # another request came
        self.resends.took(upto)
        if rows:
            self._run = rows
            appender.begin_run(len(rows))
            self.entered.noted = appender.steps.steps[-1]
            last, size = appender.stream_seq + len(rows), sum(map(size_of, rows))
            now_s = self._clock.monotonic_s()
            self.resends.sent(work._replace(hi=upto), len(rows), size, last, now_s)
        self.holes.look()

    async def _pass_over(self, out: OutStream, seq: int) -> None:
        """Go on after seqs that will never be sent."""
        self._rows.clear()
        if self.appender.state is not AppenderState.RUNNING:
            return  # looked at again, from where the stream ends
        short = self.appender.pass_over(seq)
        if short:
            await self._jump(out, self.appender.stream_seq)

    def _on_answer(self, generation: int, stream_seq: int, stored: bool, error: str) -> None:
        if stored:
            self._no_room = False
            self.appender.answered(generation, stream_seq)
        else:
            if error:
                self._no_room = True
                self._trouble(error)
            self.appender.refused(generation)
        self._wake.set()
        self._moved.set()

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes or heals."""
        if error != self.last_error:
            log.error("lane_stopped", lane=self.name, error=error)
        self.last_error = error
