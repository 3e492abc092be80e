"""One stream of the hub's messages, read in order: the shell around `position.Cursor`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard
from backhaul_agent.downlink.position import POSITION, Cursor
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.leaf.streams import in_stream, in_stream_config
from backhaul_agent.ledger.rows import Inward

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_codec.kinds import Lane
    from backhaul_runtime.jetstream import StreamMessage

    # Takes in one message, said to be fresh or not; what it changes goes into the same commit.
    # Returns whether it could be read.
    Handle: TypeAlias = Callable[[StreamMessage, Inward, bool], bool]

POLL_S = 5.0
BATCH_MESSAGES = 128  # read, then committed together
BATCH_BYTES = 1 << 20
log = structlog.get_logger("downlink")


class InReader:
    """Keeps one IN stream set up and reads it; lives as long as the daemon.

    ``lane``: of the node whose stream it is; empty: the device's. ``retired``: the node is no longer
    named. What its stream holds is read to the end, and then the stream is removed: all it had
    and what may still come for it the hub has as heads, which both ends compare.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        writer: Writer,
        handle: Handle,
        *,
        lane: Lane = "",
        retired: bool = False,
    ) -> None:
        self.lane, self.stream = lane, in_stream(lane)
        self.messages = self.garbage = 0
        self.last_error = ""
        self.retired = retired
        self._config = None if retired else in_stream_config(config, lane)
        self._writer = writer
        self._handle = handle
        self._position = f"{POSITION} {lane}" if lane else POSITION
        self._cursor = Cursor(str(ledger.meta.get(self._position, "")))
        self._committed_seq = self._cursor.position.seq
        self._recalled = False
        self._news = asyncio.Event()
        self._doubt = True

    @property
    def hub_seq(self) -> int:
        """Return the greatest sequence of the hub's stream that was read."""
        return self._cursor.position.hub_seq

    async def run(self, jetstream: JetStream, server: str, recalled: list[str]) -> None:
        """Read for as long as the connection lives (the caller cancels).

        ``server``: the id of the leaf server's run. ``recalled``: prefixes of subjects that are to
        be read once more after a start of the agent.
        """
        self._doubt = True
        prepared = False
        while True:
            self._news.clear()
            try:
                if not prepared:
                    await self._prepare(jetstream)
                    prepared = True
                # Nothing is read at a position that belongs to no stream: it would be read again.
                if not self._doubt or await self._open(jetstream, server):
                    await self._recall(jetstream, recalled)
                    while await self._read(jetstream):
                        pass
                self._well()
                if self.retired:
                    await self._remove(jetstream)
                    return
            except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                prepared = False
                self._trouble(str(error) or type(error).__name__)
            if not await heard(self._news, POLL_S):
                self._doubt = True

    def on_news(self, sequence: str) -> None:
        """Learn that the stream has stored something."""
        # A sequence that has been read already: the stream is not what it was.
        self._doubt |= sequence.isdigit() and int(sequence) < self._cursor.next_seq
        self._news.set()

    async def at_end(self, jetstream: JetStream) -> bool:
        """Tell whether all that the stream holds is committed; no, while nobody knows.

        Raises: JetStreamError, NatsError: the leaf server does not answer, or there is no stream.
        """
        if self._doubt:
            return False
        next_seq = self._committed_seq + 1
        return await jetstream.message(self.stream, seq=next_seq, next_by_subj=">") is None

    async def _prepare(self, jetstream: JetStream) -> None:
        if self._config is not None and await jetstream.ensure_stream(self._config):
            log.info("stream_created", stream=self.stream)

    async def _open(self, jetstream: JetStream, server: str) -> bool:
        """Compare the position with the stream; return whether there is one."""
        try:
            created, state = await jetstream.created_and_state(self.stream)
        except JetStreamError as error:
            if error.no_such_stream and self._config is None:
                return False
            raise
        before = self._cursor.position.seq
        if self._cursor.open(created, server, int(state["last_seq"])) and before:
            log.info(
                "downlink_read_from_start", stream=self.stream, position=before,
                last_seq=state["last_seq"],
            )  # fmt: skip
        self._committed_seq = self._cursor.position.seq
        self._doubt = False
        return True

    async def _recall(self, jetstream: JetStream, prefixes: list[str]) -> None:
        """Hand over again, once after a start, the messages that handlers keep in memory only."""
        if self._recalled:
            return
        for prefix in prefixes:
            seq = 1
            while seq < self._cursor.next_seq:
                message = await jetstream.message(self.stream, seq=seq, next_by_subj=f"{prefix}.>")
                if message is None or message.seq >= self._cursor.next_seq:
                    break
                self._handle(message, Inward(), False)
                seq = message.seq + 1
        self._recalled = True

    async def _read(self, jetstream: JetStream) -> bool:
        """Read a batch, commit it; return whether there may be more."""
        changes = Inward()
        before = self._cursor.position
        message: StreamMessage | None = None
        size = count = garbage = 0
        try:
            while count < BATCH_MESSAGES and size < BATCH_BYTES:
                message = await jetstream.message(
                    self.stream, seq=self._cursor.next_seq, next_by_subj=">"
                )
                if message is None:
                    break
                garbage += not self._handle(message, changes, self._cursor.read(message))
                count += 1
                size += len(message.data)
        except BaseException:
            self._cursor.position = before  # what was read of this batch is read again
            raise
        if count:
            changes.meta[self._position] = self._cursor.stored()
            await self._writer.apply(changes)
            self._committed_seq = self._cursor.position.seq
            self.messages += count  # what is counted can be asked for
            self.garbage += garbage
        return message is not None

    async def _remove(self, jetstream: JetStream) -> None:
        if await jetstream.delete_stream(self.stream):
            log.info("node_stream_removed", stream=self.stream)

    def _well(self) -> None:
        if self.last_error:
            log.info("downlink_read_again", stream=self.stream, after=self.last_error)
        self.last_error = ""

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes or heals."""
        self._doubt = True
        if error != self.last_error:
            log.warning("downlink_not_read", stream=self.stream, error=error)
        self.last_error = error
