"""What the hub sends: stream IN, read in order, each message handed to whom it concerns.

The position is committed in the same transaction as what the messages changed, so nothing is merged
twice or skipped, whatever dies at whatever moment. IN republishes the headers of what it stores, which
wakes the reader; a slow look at the stream's state is the net under it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.in_position import POSITION, Cursor
from backhaul_agent.ledger_rows import Inward
from backhaul_agent.link_config import IN_NEWS, IN_STREAM, in_stream_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.config import Config
    from backhaul_agent.jetstream import JetStream, Stored
    from backhaul_agent.ledger import Ledger
    from backhaul_agent.writer import Writer

POLL_S = 5.0
BATCH_MESSAGES = 128  # read, then committed together
BATCH_BYTES = 1 << 20
log = structlog.get_logger("downlink")


class Inbound(NamedTuple):
    """One message of IN. ``tokens``: its subject split. ``fresh``: False where it was read before.

    A message is read again after the leaf server started anew, see `in_position`.
    """

    tokens: list[str]
    data: bytes
    fresh: bool


# Takes in one message; what it adds to the changes is committed together with the position. A
# ValueError says that it is garbage and nothing was added: it is counted, logged, and passed over.
# A fault in the middle of a batch may hand a message over twice.
Handler: TypeAlias = "Callable[[Inbound, Inward], None]"


class _Registered(NamedTuple):
    handler: Handler
    in_memory: bool


class Downlink:
    """Keeps IN set up and reads it; lives as long as the daemon."""

    def __init__(self, config: Config, ledger: Ledger, writer: Writer) -> None:
        self.garbage = 0
        self.messages = 0
        self.last_error = ""
        self._config = config
        self._writer = writer
        self._cursor = Cursor(str(ledger.meta.get(POSITION, "")))
        self._handlers: dict[str, _Registered] = {}
        self._recalled = False
        self._news = asyncio.Event()
        self._doubt = True

    def register(self, prefix: str, handler: Handler, *, in_memory: bool = False) -> None:
        """Have ``handler`` called for subjects that begin with the tokens ``prefix``: ``s.resend``.

        The longest prefix wins. ``in_memory``: what the handler does is not in ``changes``, so a
        crash may forget it; such messages are handed over again whenever the agent starts.
        """
        self._handlers[prefix] = _Registered(handler, in_memory)

    async def run(self, client: Client, jetstream: JetStream) -> None:
        """Read for as long as the connection lives (the caller cancels)."""
        await client.subscribe(f"{IN_NEWS}.>", cb=self._on_news)
        server = await _server_id(client)
        self._doubt = True
        prepared = False
        while True:
            self._news.clear()
            try:
                if not prepared:
                    await self._prepare(jetstream)
                    prepared = True
                if self._doubt and await self._open(jetstream, server):
                    await self._recall(jetstream)
                while await self._read(jetstream):
                    pass
                self._well()
            except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                prepared = False
                self._trouble(str(error) or type(error).__name__)
            try:
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
            except TimeoutError:
                self._doubt = True

    async def _prepare(self, jetstream: JetStream) -> None:
        stream = in_stream_config(self._config)
        if stream is not None and await jetstream.ensure_stream(stream):
            log.info("stream set up", stream=IN_STREAM)

    async def _open(self, jetstream: JetStream, server: str) -> bool:
        """Compare the position with the stream; return whether there is one."""
        try:
            created, state = await jetstream.created_and_state(IN_STREAM)
        except JetStreamError as error:
            if error.no_such_stream and in_stream_config(self._config) is None:
                return False
            raise
        before = self._cursor.position.seq
        if self._cursor.open(created, server, int(state["last_seq"])) and before:
            log.info("IN is read from its start", position=before, last_seq=state["last_seq"])
        self._doubt = False
        return True

    async def _recall(self, jetstream: JetStream) -> None:
        """Hand over again, once after a start, what handlers keep in memory only."""
        if self._recalled:
            return
        for prefix, registered in self._handlers.items():
            seq = 1
            while registered.in_memory and seq < self._cursor.next_seq:
                message = await jetstream.message(IN_STREAM, seq=seq, next_by_subj=f"{prefix}.>")
                if message is None or message.stream_seq >= self._cursor.next_seq:
                    break
                self._handle(message, Inward(), fresh=False)
                seq = message.stream_seq + 1
        self._recalled = True

    async def _read(self, jetstream: JetStream) -> bool:
        """Read a batch, commit it; return whether there may be more."""
        changes = Inward()
        before = self._cursor.position
        message: Stored | None = None
        size = count = 0
        try:
            while count < BATCH_MESSAGES and size < BATCH_BYTES:
                message = await jetstream.message(
                    IN_STREAM, seq=self._cursor.next_seq, next_by_subj=">"
                )
                if message is None:
                    break
                self._handle(message, changes, fresh=self._cursor.read(message))
                count += 1
                size += len(message.data)
        except BaseException:
            self._cursor.position = before  # what was read of this batch is read again
            raise
        if count:
            self.messages += count
            changes.meta[POSITION] = self._cursor.stored()
            await self._writer.apply(changes)
        return message is not None

    def _handle(self, message: Stored, changes: Inward, *, fresh: bool) -> None:
        tokens = message.subject.split(".")
        prefixes = (".".join(tokens[:count]) for count in range(len(tokens), 0, -1))
        registered = next(filter(None, map(self._handlers.get, prefixes)), None)
        if registered is None:
            log.debug("nothing here takes this", subject=message.subject)
            return
        try:
            registered.handler(Inbound(tokens, message.data, fresh), changes)
        except ValueError as error:
            self.garbage += 1
            log.warning("garbage from the hub", subject=message.subject, error=str(error))

    async def _on_news(self, message: Msg) -> None:
        sequence = (message.headers or {}).get("Nats-Sequence", "")
        # A sequence that has been read already: the stream is not what it was.
        self._doubt |= sequence.isdigit() and int(sequence) < self._cursor.next_seq
        self._news.set()

    def _well(self) -> None:
        if self.last_error:
            log.info("IN is read again", after=self.last_error)
        self.last_error = ""

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes or heals."""
        self._doubt = True
        if error != self.last_error:
            log.warning("IN cannot be read", error=error)
        self.last_error = error


async def _server_id(client: Client) -> str:
    """Return the id of the leaf server's run: it is another one after each start."""
    with contextlib.suppress(NatsError, msgspec.DecodeError, KeyError):
        message = await client.request("$SYS.REQ.USER.INFO", b"", timeout=2.0)
        heed_cancel()
        answer: dict[str, Any] = msgspec.json.decode(message.data, type=dict[str, Any])
        return str(answer["server"]["id"])
    return ""
