"""nats-py's client, made to bear every message that a nats-server lets through, and to close its connections.

To a server any byte but space, tab and line ends may stand in a subject or a reply, and headers are
bytes. nats-py 2.16 takes two bytes more for the end of a subject: one could go on with the number of
another subscription, as of `hub.stop`, and was heard by that. Where text is no UTF-8 it stops reading
without a word, until its pings find out. Whoever publishes anything that is heard could do either.

It forgets the socket of an attempt to connect that failed, and of one that is given up, as by a
cancellation: they stay open, with the server's end of them, until something collects garbage.

Whoever closes a client that waits for the end of a lost connection has that wait cancelled, and would wait
for the same himself: he was told that he was cancelled, up to one time in ten right after a server was killed.

Its ping overtakes what it has yet to write: `flush` returned before the server had heard of a subscription, so
whoever asked then was told that nobody was there.

It waits for answers with `asyncio.wait_for`, which before Python 3.12 forgets a cancellation that arrives together
with an answer. The answer may be that nobody is there, as of a server that ends: an error, which callers take as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from nats import errors
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError
from nats.protocol import parser

if TYPE_CHECKING:
    from nats.aio.msg import Msg

# As the server separates them: with two spaces where a reply is there and empty.
parser.MSG_RE = re.compile(rb"\AMSG +([^ \t\r\n]+) +(\d+) +(([^ \t\r\n]+) +)?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG +([^ \t\r\n]+) +(\d+) +(([^ \t\r\n]+) +)?(\d+) +(\d+)\r\n")


async def _wait_closed(self: TcpTransport) -> None:
    writer = self._io_writer
    # asyncio's one future for all who wait: it is cancelled with the first of them.
    if writer is not None and not writer._protocol._get_close_waiter(writer).cancelled():  # type: ignore[attr-defined]
        await writer.wait_closed()


TcpTransport.wait_closed = _wait_closed  # type: ignore[method-assign]


RawMessage = Callable[[bytes, bytes, bytes], Awaitable[None]]
"""Takes a message as it came: subject, header block (empty where there is none), body."""

Outgoing = tuple[str, bytes, bytes]
"""A subject, its header block as the server reads it (empty: none), a body."""
_SUBJECT = re.compile(r"[^ \t\r\n]+")


class PatchedClient(Client):
    """Delivers every message: text that is no UTF-8 with U+FFFD in it, which no name of ours has."""

    def __init__(self) -> None:
        super().__init__()
        self._raw: dict[int, RawMessage] = {}

    @contextlib.asynccontextmanager
    async def raw(self, subject: str, hear: RawMessage) -> AsyncIterator[None]:
        """Have each message on a subject handed on as it comes, and nothing read of it.

        For whoever reads thousands: nats-py takes 40 us for the headers of one and for its way through a
        queue and a task. `hear` is called in the connection's own task: it must not wait for an answer.
        """
        subscription = await self.subscribe(subject)
        self._raw[subscription._id] = hear
        try:
            yield
        finally:
            del self._raw[subscription._id]
            if not self.is_closed:
                await subscription.unsubscribe()

    async def request(self, *args: Any, **options: Any) -> Msg:
        """Return the answer as nats-py does. A cancellation is raised also if it comes together with an answer."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in one
        before = task.cancelling()
        try:
            return await super().request(*args, **options)
        finally:
            if task.cancelling() > before:
                raise asyncio.CancelledError

    async def publish_many(self, messages: Iterable[Outgoing]) -> None:
        """Publish messages in their order, all of them or none, as `publish` does each.

        For whoever has hundreds at a time: nats-py takes some 10 us for the checks and awaits of one.

        Raises:
            NatsError: the connection is closed, or has no room for them while it is lost; a subject is
                none, or a message larger than the server takes.
        """
        parts = list[bytes]()
        count = size = 0
        for subject, headers, body in messages:
            length = len(headers) + len(body)
            if not _SUBJECT.fullmatch(subject):
                raise errors.BadSubjectError
            if length > self._max_payload:
                raise errors.MaxPayloadError
            if headers:
                head = f"HPUB {subject} {len(headers)} {length}\r\n"
                parts += (head.encode(), headers, body, b"\r\n")
            else:
                parts += (f"PUB {subject} {length}\r\n".encode(), body, b"\r\n")
            count += 1
            size += len(body)
        lines = b"".join(parts)
        if self.is_closed:
            raise errors.ConnectionClosedError
        if self.is_draining_pubs:
            raise errors.ConnectionDrainingError
        if not self.is_connected and len(lines) + self._pending_data_size > self._max_pending_size:
            raise errors.OutboundBufferLimitError
        if not count:
            return
        self.stats["out_msgs"] += count
        self.stats["out_bytes"] += size
        await self._send_command(lines)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def connect(self, *args: Any, **options: Any) -> None:
        """Connect as nats-py does; leave nothing open where that fails or is cut short."""
        try:
            await super().connect(*args, **options)
        except BaseException:
            self._close_socket()
            raise

    async def flush(self, timeout: float = DEFAULT_FLUSH_TIMEOUT) -> None:  # noqa: ASYNC109
        """Return when the server has read all that was sent before. Raises: NatsError."""
        # All of it is written before the first answer is read, so the second ping comes after it.
        for _ in range(2):
            await super().flush(timeout)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Close it, whether or not its server is still there.

        The reset that nats-py then raises would replace whatever is already on its way out.
        """
        with contextlib.suppress(NatsError, OSError):
            await super().close()

    async def _connect_to_server(self, s: Srv) -> None:
        self._close_socket()
        await super()._connect_to_server(s)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        hear = self._raw.get(sid)
        if hear is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        await hear(subject, headers or b"", data)

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        return self.msg_class(self, _text(subject), _text(reply), data, headers, _sid=sid)

    async def read_headers(self, headers: bytes) -> dict[str, str]:
        """Return the headers of a block, as those of a message; `Status` and `Description` of its first line."""
        return await self._process_headers(headers) or {}

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if not headers:
            return None  # nearly always
        try:
            return await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):  # a first line that no server writes
            return self._parse_header_lines(headers.partition(b"\r\n")[2]) or None


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
