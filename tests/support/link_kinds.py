"""The bytes of a leaf's link by kind: what crosses the relay, unpacked and read as the servers' protocol."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from tests.support.s2 import Unpacker

PINGS, LOGIN, OTHER = "pings", "login, subscriptions", "other"
READINGS, DICTIONARIES, OWN_EVENTS = "readings", "dictionaries", "events, state, marks"
HEARTBEATS, SOURCES, WATERMARKS = "heartbeats, flow control", "sources: questions", "watermarks"
CLOCK, COMMANDS = "clock", "commands, settings"
_MESSAGE = re.compile(rb"(LMSG|HMSG) (\S+)(?: .*)? (\d+)")
_FIRST = {
    "clk": CLOCK,
    "clkr": CLOCK,
    "$JS": SOURCES,
    "_R_": SOURCES,
    "$JSC": SOURCES,
    "hubapi": SOURCES,
}


class LinkKinds:
    """Counts the bytes that a link carried by kind, of all its connections; `total` counts what was read."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()

    def connection(self) -> Direction:
        """Return the reader of one direction of a new connection."""
        return Direction(self)


class _Stretch(NamedTuple):
    size: int
    carried: int


class Direction:
    """One direction of one connection."""

    def __init__(self, kinds: LinkKinds) -> None:
        self._kinds = kinds
        self._unpacker = Unpacker()
        self._waiting = b""
        self._carried: list[_Stretch] = []

    def take(self, data: bytes) -> None:
        """Take in what the link carried.

        Raises:
            ValueError: it is not what servers say to one another.
        """
        for piece in self._unpacker.take(data):
            self._waiting += piece.data
            self._carried.append(_Stretch(len(piece.data), piece.carried))
        while (end := self._waiting.find(b"\r\n")) >= 0:
            line, size = self._waiting[:end], end + 2
            body = b""
            if message := _MESSAGE.fullmatch(line):
                whole = size + int(message[3]) + 2
                if len(self._waiting) < whole:
                    return
                body, size = self._waiting[size : whole - 2], whole
                kind = kind_of(message[2].decode(), body)
            else:
                verb = line.partition(b" ")[0].upper()
                kind = PINGS if verb in (b"PING", b"PONG") else LOGIN
            self._waiting = self._waiting[size:]
            self._kinds.bytes[kind] += self._paid(size)
            self._kinds.messages[kind] += 1

    def _paid(self, size: int) -> int:
        """Return how many bytes the link carried for the next so many of the protocol, and count them as told."""
        paid = 0
        while size:
            stretch = self._carried[0]
            part = min(size, stretch.size)
            share = stretch.carried * part // stretch.size
            paid, size = paid + share, size - part
            if part == stretch.size:
                del self._carried[0]
            else:
                self._carried[0] = _Stretch(stretch.size - part, stretch.carried - share)
        return paid


def kind_of(subject: str, body: bytes) -> str:
    """Return the kind of a message between the servers, by its subject at the link and its body."""
    first, *rest = subject.split(".")
    if first == "$JS" and rest[:1] == ["FC"]:
        return HEARTBEATS
    if first in ("dlv", "dn"):
        head = body.partition(b"\r\n")[0]
        if head.startswith(b"NATS/1.0 100"):
            return HEARTBEATS
        return READINGS if first == "dlv" else COMMANDS
    if first == "u" and len(rest) > 2:
        letter = rest[2]
        return {"b": READINGS, "f": READINGS, "d": DICTIONARIES}.get(letter, OWN_EVENTS)
    if first == "w" and len(rest) > 2:
        return WATERMARKS if rest[2] == "k" or rest[2:4] == ["s", "watermark"] else COMMANDS
    return _FIRST.get(first, OTHER)
