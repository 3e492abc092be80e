"""One lane's way from the ledger to its OUT stream: the shell around `appender.Appender`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.appender import Appender, Limits, State, Tail
from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.events import receipt
from backhaul_agent.ledger_rows import ROW_BYTES, Distance, Quarantine
from backhaul_agent.link_config import out_consumer_config, out_stream, out_stream_config
from backhaul_codec import CodecError, peek
from backhaul_codec.placed import check_placed
from backhaul_codec.subjects import SubjectError, parse_leaf

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.clock import Clock
    from backhaul_agent.config import Config
    from backhaul_agent.jetstream import JetStream
    from backhaul_agent.ledger import Ledger
    from backhaul_agent.ledger_rows import Row
    from backhaul_agent.writer import Writer

READ_ROWS = 64
WALK_BACK = 64  # how many foreign messages at a stream's end are passed over to find our last
HOLE_MAX = 4096  # seqs explained in one go
RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
log = structlog.get_logger("lane")


class PublishAnswer(msgspec.Struct):
    """What the server says to an append."""

    seq: int = 0
    error: msgspec.Raw = msgspec.Raw()


_decode_answer = msgspec.json.Decoder(PublishAnswer).decode


class Lane:
    """Appends one lane's messages while there is a connection; lives as long as the daemon."""

    def __init__(
        self, name: str, ledger: Ledger, writer: Writer, config: Config, clock: Clock
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
        self.appender = Appender(ledger.epoch, Limits(outstanding_bytes=outstanding))
        self._rows: deque[Row] = deque()
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()  # an answer came, or the tail was read
        state = ledger.lanes[name]
        self.appender.committed(state.ready_seq)
        self.appender.raise_watermark(state.watermark)

    def on_commit(self) -> None:
        """Learn that the ledger has grown, or that more of it may leave."""
        self.appender.committed(self._ledger.lanes[self.name].ready_seq)
        self._wake.set()

    def on_watermark(self, seq: int) -> None:
        """Learn how far the hub holds everything; persisted with the next commit."""
        self.appender.raise_watermark(seq)
        if seq <= self._last_seq:
            self._writer.set_watermark(self.name, seq)
        self._wake.set()

    async def run(self, client: Client, jetstream: JetStream) -> None:
        """Append for as long as this connection lives (the caller cancels)."""
        inbox = client.new_inbox()
        answers = await client.subscribe(f"{inbox}.*.*", cb=self._on_answer)
        self.appender.connected()
        retry_s = RETRY_S_MIN
        try:
            while True:
                try:
                    await self._prepare(jetstream)
                    while True:
                        await self._step(client, jetstream, inbox)
                        retry_s = RETRY_S_MIN
                except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                    self._trouble(str(error) or type(error).__name__)
                    self.appender.connected()
                    await asyncio.sleep(retry_s)
                    retry_s = min(RETRY_S_MAX, retry_s * 2)
        finally:
            self.appender.disconnected()
            if not client.is_closed:
                await answers.unsubscribe()

    async def drained(self) -> None:
        """Wait until everything committed is in the stream, or the lane has halted."""
        while not self.appender.done and self.appender.state is not State.BEHIND:
            self._moved.clear()
            await self._moved.wait()

    @property
    def _last_seq(self) -> int:
        return self._ledger.lanes[self.name].last_seq

    async def _prepare(self, jetstream: JetStream) -> None:
        if await jetstream.ensure_stream(out_stream_config(self._config, self.name)):
            log.info("stream set up", stream=self.stream)
        consumer = out_consumer_config(self._config, self.name)
        if await jetstream.ensure_consumer(self.stream, consumer):
            log.info("consumer set up", stream=self.stream, consumer=consumer["durable_name"])

    async def _step(self, client: Client, jetstream: JetStream, inbox: str) -> None:
        """Do what can be done now, then wait for something to happen."""
        self._wake.clear()
        if self.appender.state is State.SEEKING:
            await self._seek(jetstream)
        await self._fill(client, inbox)
        self._moved.set()
        if self.appender.state is State.SEEKING:
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

    async def _seek(self, jetstream: JetStream) -> None:
        """Read where the stream ends, and go on after it."""
        created, tail = await self._tail(jetstream)
        self.appender.committed(self._ledger.lanes[self.name].ready_seq)
        known = self._ledger.lanes[self.name].distance
        least = self.appender.least_stream_seq(tail, known.offset)
        # A stream that was made anew is read from its start by the hub, which knows it by its
        # identity: only the same stream can have gone back in time.
        if created == known.created and tail.stream_seq < least:
            log.warning(
                "the leaf's store went back in time", stream=self.stream,
                stream_seq=tail.stream_seq, go_on_after=least,
            )  # fmt: skip
            # Empties the stream: all above the watermark is appended again.
            await jetstream.purge(self.stream, least + 1)
            tail = Tail(least)
        start = self.appender.start_of(tail)
        await self._writer.set_distance(self.name, Distance(created, tail.stream_seq - start))
        sizes = await self._ledger.sizes(self.name, self.appender.watermark + 1, start)
        self.appender.sought(tail, sizes)
        self._rows.clear()
        if self.appender.state is State.BEHIND:
            self._trouble(
                f"the ledger ends at seq {self._last_seq}, but {self.stream} or the hub has more: "
                "an old copy was put back; set ledger.path to a new file to go on with a new epoch"
            )
        else:
            log.info("lane goes on", lane=self.name, after_seq=start, stream_seq=tail.stream_seq)

    async def _tail(self, jetstream: JetStream) -> tuple[str, Tail]:
        """Return when the stream was made, and where it ends."""
        created, state = await jetstream.created_and_state(self.stream)
        last, first = int(state["last_seq"]), int(state["first_seq"])
        if state["messages"]:
            for stream_seq in range(last, max(first, last - WALK_BACK + 1) - 1, -1):
                message = await jetstream.message(self.stream, seq=stream_seq)
                if message is None:
                    continue
                try:
                    header = peek(message.data)
                except CodecError:
                    header = None
                if header is not None and header.epoch == self._ledger.epoch:
                    return created, Tail(last, header.epoch, header.seq)
                self.foreign_messages += 1
        return created, Tail(last)

    async def _fill(self, client: Client, inbox: str) -> None:
        """Send until the window is full or the ledger's end is reached."""
        appender = self.appender
        while (seq := appender.next_seq()) is not None:
            last_seq = appender.last_seq  # before the read: what is committed during it is no hole
            row = await self._row(seq)
            if appender.next_seq() != seq:  # an answer or a watermark came in while we read
                continue
            if row is None or row.seq != seq:
                await self._explain_hole(seq, row.seq - 1 if row else last_seq)
                continue
            if flaw := self._flaw(row):
                await self._set_aside(seq, seq, flaw)
                continue
            self._rows.popleft()
            size = len(row.body) + len(row.subject) + ROW_BYTES
            expected = appender.send(seq, size, self._clock.monotonic_s())
            await client.publish(
                row.subject,
                row.body,
                reply=f"{inbox}.{appender.generation}.{seq}",
                headers={"Nats-Expected-Last-Sequence": str(expected)},
            )
            heed_cancel()

    async def _row(self, seq: int) -> Row | None:
        """Return the first row from ``seq`` on; what was read ahead is kept in memory."""
        while self._rows and self._rows[0].seq < seq:
            self._rows.popleft()
        if not self._rows:
            self._rows.extend(await self._ledger.read(self.name, seq, READ_ROWS))
        return self._rows[0] if self._rows else None

    def _flaw(self, row: Row) -> str:
        """Return what is wrong with a row read back, or nothing: bits rot, disks lie."""
        try:
            place = parse_leaf(row.subject)
            header = check_placed(place, row.body)
        except (CodecError, SubjectError) as error:
            return str(error)
        if place.lane != self.name:
            return f"{row.subject!r} does not belong here"
        if (header.epoch, header.seq) != (self._ledger.epoch, row.seq):
            return f"it is stamped epoch {header.epoch} seq {header.seq}"
        return ""

    async def _explain_hole(self, lo: int, hi: int) -> None:
        """Pass over seqs that are not there; those nobody explained yet get a receipt."""
        hi = min(hi, lo + HOLE_MAX - 1)
        known = await self._ledger.explained(self.name, lo, hi)
        missing = [seq for seq in range(lo, hi + 1) if seq not in known]
        if missing:
            await self._set_aside(missing[0], missing[-1], "missing in the ledger", *missing)
        self.appender.skip(hi)

    async def _set_aside(self, lo: int, hi: int, reason: str, *seqs: int) -> None:
        """Quarantine rows and tell the hub, durably, that they will never come."""
        log.error("ledger row quarantined", lane=self.name, lo=lo, hi=hi, reason=reason)
        rows = [Quarantine(self.name, seq, reason) for seq in seqs or (lo,)]
        note = receipt(
            self.name, self._ledger.epoch, lo, hi, f"corrupt: {reason}", self._clock.time_ns()
        )
        await self._writer.set_aside(rows, [note])
        self._rows.clear()
        self.appender.skip(hi)

    async def _on_answer(self, message: Msg) -> None:
        _, generation, seq = message.subject.rsplit(".", 2)
        try:
            answer = _decode_answer(message.data)
            stored = bool(answer.seq) and not answer.error
        except msgspec.DecodeError:
            stored = False  # no responders: the stream is gone
        if stored:
            self.appender.answered(int(generation), int(seq))
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
