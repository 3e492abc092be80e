"""Messages of the hub: stream IN, and one for each node with lanes of its own, read in order.

The position is committed in the same transaction as what the messages changed, so nothing is merged
twice or skipped, whatever dies at whatever moment. A stream republishes the headers of what it
stores, which wakes its reader; a slow look at the stream's state is the net under it.

While IN sleeps (`push/in_sleep.py`) messages come beside it, and are handed over at once. The position does not move
by that: IN brings each of them again, and it is passed over then.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.downlink.reader import InReader
from backhaul_agent.leaf.streams import IN_NEWS
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_codec.kinds import SHARED_LANES
from backhaul_codec.protocol.push import is_passing
from backhaul_codec.subjects import parse_leaf, shared_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_codec.kinds import Lane
    from backhaul_runtime.jetstream import StreamMessage

TAKEN_MAX = 1024
"""Subjects of which it is known what came beside; of any other a message is handed over twice."""
log = structlog.get_logger("downlink")


# Takes in one message; what it adds to the changes is committed together with the position. A
# ValueError says that it is garbage and nothing was added: it is counted, logged, and passed over.
# A fault in the middle of a batch may hand a message over twice.
Handler: TypeAlias = "Callable[[Inbound, Inward], None]"


class _Registered(NamedTuple):
    handler: Handler
    in_memory: bool


class Downlink:
    """Reads all the IN streams and hands each message to its receiver.

    ``own``: the lanes of nodes that have streams of their own. A lane that the ledger knows beyond
    those is one of a node that had.
    """

    def __init__(
        self, config: Config, ledger: Ledger, writer: Writer, own: Collection[Lane] = ()
    ) -> None:
        self.news = 0
        """Counts what IN has brought that is more than passing."""
        self._handlers: dict[str, _Registered] = {}
        self._writer = writer
        self._taken: dict[str, bytes] = {}
        """By subject: the message that was handed over beside, and that IN has not brought yet."""
        retired = ledger.lanes.keys() - {*SHARED_LANES, *own}
        self._readers = [
            InReader(config, ledger, writer, self._read),
            *(InReader(config, ledger, writer, self._read, lane=lane) for lane in own),
            *(
                InReader(config, ledger, writer, self._read, lane=lane, retired=True)
                for lane in sorted(retired)
            ),
        ]

    @property
    def streams(self) -> list[str]:
        """Return the streams that are kept set up."""
        return [reader.stream for reader in self._readers if not reader.retired]

    def status(self) -> dict[str, Any]:
        """Return the counters of the status."""
        return {"downlink_messages": self.messages, "downlink_garbage": self.garbage}

    @property
    def hub_seqs(self) -> dict[Lane, int]:
        """Return the last sequence of the hub's stream that each stream has brought, by its lane, "" for IN."""
        return {each.lane: each.hub_seq for each in self._readers if not each.retired}

    @property
    def messages(self) -> int:
        """Return how many messages were taken in since the start."""
        return sum(reader.messages for reader in self._readers)

    @property
    def garbage(self) -> int:
        """Return how many of them could not be read."""
        return sum(reader.garbage for reader in self._readers)

    @property
    def last_error(self) -> str:
        """Return the error of a stream, nothing where all are well."""
        return next((reader.last_error for reader in self._readers if reader.last_error), "")

    async def at_end(self, jetstream: JetStream) -> bool:
        """Tell whether all that has come is committed; no, while nobody knows.

        Raises: JetStreamError, NatsError: the leaf server does not answer, or a stream is not there.
        """
        for reader in self._readers:
            if not (reader.retired or await reader.at_end(jetstream)):
                return False
        return True

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
        recalled = [prefix for prefix, each in self._handlers.items() if each.in_memory]
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(reader.run(jetstream, server, recalled))

    async def take_beside(self, messages: list[StreamMessage]) -> None:
        """Hand over messages that were spoken beside IN.

        IN's copies are passed over from now on: what they change is committed after this, or together with it.
        """
        changes = Inward()
        for message in messages:
            self._handle(message, changes, True)
            self._taken.pop(message.subject, None)
            self._taken[message.subject] = message.data
        while len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]
        if changes != Inward():
            await self._writer.apply(changes)

    def _read(self, message: StreamMessage, changes: Inward, fresh: bool) -> bool:
        """Take in a message of a stream; return whether it could be read."""
        if fresh:
            self.news += not is_passing(message.subject)
            if self._taken.pop(message.subject, None) == message.data:
                return True  # it came beside
        return self._handle(message, changes, fresh)

    def _handle(self, message: StreamMessage, changes: Inward, fresh: bool) -> bool:
        try:
            if message.subject.startswith("n."):
                parse_leaf(message.subject)  # whose points they are must be whose stream it is
            tokens = shared_subject(message.subject).split(".")
            prefixes = (".".join(tokens[:count]) for count in range(len(tokens), 0, -1))
            registered = next(filter(None, map(self._handlers.get, prefixes)), None)
            if registered is None:
                log.debug("subject_not_handled", subject=message.subject)
                return True
            registered.handler(Inbound(tokens, message.data, fresh), changes)
        except (ValueError, RecursionError) as error:
            log.warning("hub_message_invalid", subject=message.subject, error=str(error))
            return False
        return True

    async def _on_news(self, message: Msg) -> None:
        headers = message.headers or {}
        for reader in self._readers:
            if reader.stream == headers.get("Nats-Stream"):
                reader.on_news(headers.get("Nats-Sequence", ""))


async def _server_id(client: Client) -> str:
    """Return the id of the leaf server's run: it is another one after each start."""
    with contextlib.suppress(NatsError, msgspec.DecodeError, KeyError):
        message = await client.request("$SYS.REQ.USER.INFO", b"", timeout=2.0)
        answer: dict[str, Any] = msgspec.json.decode(message.data, type=dict[str, Any])
        return str(answer["server"]["id"])
    return ""
