"""A leaf that obeys nobody: the leaf protocol by hand, with none of a server's own checks.

A real leaf server keeps to the permissions that the hub tells it, and sends neither subjects nor
replies that it should not. This one sends any bytes, listens to anything, answers what it likes, and
claims whatever name, domain or account is asked of it. `heard` and `told` are what came of it.

Not covered: compression and websockets, which change how bytes travel and not what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from backhaul_codec.protocol.credentials import parse_seed
from backhaul_codec.protocol.identity import leaf_name

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from backhaul_codec.protocol.identity import Identity

ANSWER_S_MAX = 30.0
_LINE_BYTES_MAX = 1 << 22


class Heard(NamedTuple):
    """A message that the hub sent to this leaf."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes


class Closed(Exception):
    """The server has ended the connection."""


class RawLeaf:
    """One connection to a leaf port.

    Args:
        claims: what CONNECT says, login included; see `docs/security.md` for what may be claimed.
    """

    def __init__(self, host: str, port: int, claims: dict[str, Any]) -> None:
        self._host = host
        self._port = port
        self.claims = claims
        self.info: dict[str, Any] = {}
        self.heard: list[Heard] = []
        self.told: list[str] = []
        """What the hub says that it wants to hear: subjects of its LS+ lines."""
        self.errors: list[str] = []
        """What the server complained of."""
        self.closed = asyncio.Event()
        self.closed_s = 0.0
        """When the server ended it; event loop's clock."""
        self.answer: Callable[[Heard], Awaitable[None]] | None = None
        """Called for every message, to answer it."""
        self.sign: Callable[[str], dict[str, Any]] = lambda _: {}
        """Makes of the server's nonce what CONNECT says besides."""
        self.tls: ssl.SSLContext | None = None
        """With it the connection speaks TLS once the server has greeted."""
        self.first = b""
        """Sent before CONNECT."""
        self._pongs: asyncio.Queue[None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, identity: Identity, host: str, port: int, **claims: Any) -> Self:
        """Return a leaf with a vehicle's login, which claims what a true one does or what is said here."""
        said = {
            "jwt": identity.jwt,
            "name": leaf_name(identity.device, identity.token),
            "domain": identity.device,
            "headers": True,
            "jetstream": True,
            "remote_account": "VEH",
        }
        leaf = cls(host, port, said | claims)
        key = parse_seed(identity.seed)
        leaf.sign = lambda nonce: {"sig": key.sign(nonce)}
        return leaf

    async def open(self, *, wait: bool = True) -> Self:
        """Connect and log in, whether or not the server likes it.

        ``wait`` until it has taken that in: what comes in one piece with a login is not treated as
        what comes later (an account's subjects are mapped only then).
        """
        reader, writer = await asyncio.open_connection(
            self._host, self._port, limit=_LINE_BYTES_MAX
        )
        self._writer = writer
        async with asyncio.timeout(ANSWER_S_MAX):
            self.info = json.loads((await reader.readline()).partition(b" ")[2])
        if self.tls is not None:
            await writer.start_tls(self.tls, server_hostname=self._host)
        claims = self.sign(self.info.get("nonce", "")) | self.claims
        self._reading = asyncio.create_task(self._read(reader))
        await self.send(self.first + b"CONNECT " + json.dumps(claims).encode() + b"\r\n")
        if wait:
            await self.flush()
        return self

    async def close(self) -> None:
        """End the connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self.closed.set()

    async def send(self, data: bytes) -> None:
        """Send these bytes as they are; into nothing where the server has hung up."""
        assert self._writer is not None
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def listen(self, *subjects: str) -> None:
        """Say that these subjects are wanted here."""
        await self.send(b"".join(b"LS+ %s\r\n" % each.encode() for each in subjects))

    async def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: bytes = b""
    ) -> None:
        """Send one message, with any reply subject and headers."""
        place = f"{subject} {reply} " if reply else f"{subject} "
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(payload)}"
            line = f"HMSG {place}{sizes}\r\n"
        else:
            line = f"LMSG {place}{len(payload)}\r\n"
        await self.send(line.encode() + headers + payload + b"\r\n")

    async def request(
        self, subject: str, payload: bytes = b"", *, wait_s: float = ANSWER_S_MAX
    ) -> Heard | None:
        """Ask and return the answer, None where the connection ended or there was none in time."""
        reply = f"_INBOX_{self.claims.get('domain')}.{secrets.token_hex(8)}"
        await self.listen(reply)
        await self.publish(subject, payload, reply=reply)
        with contextlib.suppress(TimeoutError, Closed):
            return await self.hear(lambda heard: heard.subject == reply, wait_s=wait_s)
        return None

    async def hear(self, wanted: Callable[[Heard], bool], *, wait_s: float = ANSWER_S_MAX) -> Heard:
        """Return the first message that is wanted, one that came already included.

        Raises:
            Closed: the server has ended the connection.
            TimeoutError: none came.
        """
        async with asyncio.timeout(wait_s):
            while True:
                for heard in self.heard:
                    if wanted(heard):
                        return heard
                if self.closed.is_set():
                    raise Closed(self.errors)
                await asyncio.sleep(0.005)

    async def flush(self) -> bool:
        """Wait until the server has taken in all that was sent; say whether it still talks to us."""
        if self.closed.is_set() or self._writer is None:
            return False
        await self.send(b"PING\r\n")
        pong = asyncio.create_task(self._pongs.get())
        closed = asyncio.create_task(self.closed.wait())
        done, pending = await asyncio.wait(
            {pong, closed}, timeout=ANSWER_S_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        return pong in done

    async def logged_in(self) -> bool:
        """Tell whether the server has taken the login: it says then in which account."""
        return await self.flush() and bool(self.info.get("remote_account"))

    def heard_of(self, device: str, secret: bytes) -> list[str]:
        """Return what was learnt here about another vehicle, in words."""
        signs = (device.encode(), secret)
        found = [
            f"heard: {heard}"
            for heard in self.heard
            if device in heard.subject or any(sign in heard.payload for sign in signs)
        ]
        return found + [f"learnt: {subject}" for subject in self.told if device in subject]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                await self._take(line.rstrip(b"\r\n"), reader)
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed_s = asyncio.get_running_loop().time()
            self.closed.set()

    async def _take(self, line: bytes, reader: asyncio.StreamReader) -> None:
        verb, _, rest = line.partition(b" ")
        match verb:
            case b"PING":
                await self.send(b"PONG\r\n")
            case b"PONG":
                self._pongs.put_nowait(None)
            case b"INFO":
                self.info |= json.loads(rest)
            case b"LS+":
                self.told.append(rest.split()[0].decode(errors="replace"))
            case b"-ERR":
                self.errors.append(rest.decode(errors="replace"))
            case b"LMSG" | b"HMSG":
                await self._take_message(verb, rest.decode(errors="replace").split(), reader)

    async def _take_message(
        self, verb: bytes, fields: list[str], reader: asyncio.StreamReader
    ) -> None:
        size = int(fields.pop())
        header_bytes = int(fields.pop()) if verb == b"HMSG" else 0
        body = (await reader.readexactly(size + 2))[:-2]
        subject, *rest = fields
        # `+ reply queue...` and `| queue...` where queues are named.
        reply = rest[1] if rest[:1] == ["+"] else "" if rest[:1] == ["|"] else "".join(rest[:1])
        heard = Heard(subject, reply, body[:header_bytes], body[header_bytes:])
        self.heard.append(heard)
        if self.answer is not None:
            await self.answer(heard)


def forged(subject: str) -> str:
    """Return a reply with which nats-server tells a message's receiver this subject, not the true one."""
    return f"$JS.ACK.a.b.1.1.1.1.0@{subject}"
