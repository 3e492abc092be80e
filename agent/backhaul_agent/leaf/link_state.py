"""Whether the leaf server has its link to the hub, and the bytes on that link: asked of the leaf itself.

Every account may ask its own server for its statistics (`$SYS.REQ.ACCOUNT.PING.STATZ`); the answer
counts the account's leaf connections, and on a vehicle the only one is the link to the hub. Nothing of
that goes over the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import structlog
from nats.errors import Error as NatsError

STATISTICS = "$SYS.REQ.ACCOUNT.PING.STATZ"
LOOK_S = 1.0  # a link that is back sooner than that was not away
LOOK_DOWN_S = 0.1  # how late a link that came up is noticed: what goes first must be first
log = structlog.get_logger("uplink")


class LinkTraffic(NamedTuple):
    """The messages and bytes of the link since the leaf server started, by its count.

    ``server``: the id of the server's run: with another one all counts begin at 0. Bytes are those of
    headers and bodies, before the link's compression.
    """

    server: str
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int


class _Count(msgspec.Struct):
    msgs: int = 0
    bytes: int = 0


class _Way(msgspec.Struct):
    leafs: _Count | None = None


class _Account(msgspec.Struct):
    leafnodes: int = 0
    sent: _Way = msgspec.field(default_factory=_Way)
    received: _Way = msgspec.field(default_factory=_Way)


class _Data(msgspec.Struct):
    account_statz: list[_Account] = []
    server_id: str = ""


class _Statistics(msgspec.Struct):
    data: _Data


_decode = msgspec.json.Decoder(_Statistics).decode


def link_in(answer: bytes) -> bool | None:
    """Return whether a server's statistics count a link; None where they do not say."""
    try:
        accounts = _decode(answer).data.account_statz
    except msgspec.DecodeError:
        return None
    return any(account.leafnodes > 0 for account in accounts) if accounts else None


def traffic_in(answer: bytes) -> LinkTraffic | None:
    """Return the traffic of a server's link by its statistics; None where they do not say."""
    try:
        data = _decode(answer).data
    except msgspec.DecodeError:
        return None
    sent = [each.sent.leafs for each in data.account_statz if each.sent.leafs]
    received = [each.received.leafs for each in data.account_statz if each.received.leafs]
    if not sent or not received:
        return None
    return LinkTraffic(
        data.server_id,
        sum(each.msgs for each in sent),
        sum(each.bytes for each in sent),
        sum(each.msgs for each in received),
        sum(each.bytes for each in received),
    )


class UplinkState:
    """Knows whether the link is up, and calls its listeners.

    ``up`` is None while nobody can say: no connection to the leaf server, or one that does not
    answer such questions.
    """

    def __init__(self) -> None:
        self.up: bool | None = None
        self.ups = 0  # how often it came up, as far as was seen
        self.on_up: list[Callable[[], None]] = []
        self.on_look: list[Callable[[bool | None], None]] = []  # told what was seen, each time
        self.on_traffic: list[Callable[[LinkTraffic], None]] = []
        self._came_up = asyncio.Event()

    async def run(self, request: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Look for as long as this connection lives (the caller cancels)."""
        try:
            while True:
                try:
                    answer = await request(STATISTICS, b"")
                except (NatsError, TimeoutError):
                    answer = b""
                up = link_in(answer)
                self.note(up)
                self._note_traffic(answer)
                await asyncio.sleep(LOOK_DOWN_S if up is False else LOOK_S)
        finally:
            self.note(None)

    def note(self, up: bool | None) -> None:
        """Take in a look; a link that is up now and was not gets everybody called."""
        if up is not self.up and (up is not None or self.up):
            log.info("hub_link", up=up)
        came_up, self.up = bool(up) and not self.up, up
        for look in self.on_look:
            look(up)
        if came_up:
            self.ups += 1
            self._came_up.set()
            for tell in self.on_up:
                tell()
        elif not up:
            self._came_up.clear()

    def _note_traffic(self, answer: bytes) -> None:
        if self.on_traffic and (traffic := traffic_in(answer)) is not None:
            for tell in self.on_traffic:
                tell(traffic)

    async def wait_up(self) -> None:
        """Return as soon as the link is up; at once where it is."""
        await self._came_up.wait()
