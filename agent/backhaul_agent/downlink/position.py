"""How far IN has been read: a pure core, no I/O.

The leaf's IN stream gives out sequences, but a power cut takes its newest messages back, and what the
hub then sends again or anew comes under sequences that have been read. So a position is only good for
the run of the server in which it was reached. After any other one IN is read from its start: it holds
the newest message of each subject, so that is little, and merging is idempotent. What must not be done
twice is known by the sequence it had at the hub, which the server notes in a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from backhaul_runtime.jetstream import StreamMessage

POSITION = "in_position"  # its name in the ledger's meta table
SOURCE_HEADER = b"Nats-Stream-Source:"


class DownlinkPosition(NamedTuple):
    """Up to where IN has been read, and everything in it merged.

    ``created``: when IN was made. ``server``: the id of the leaf server's run. ``seq``: the last
    sequence read. ``hub_stream`` and ``hub_seq``: the greatest sequence read of the hub's stream.
    """

    created: str = ""
    server: str = ""
    seq: int = 0
    hub_stream: str = ""
    hub_seq: int = 0


class Cursor:
    """Follows IN. `open` where it may be another stream, then `read` each message in order."""

    def __init__(self, stored: str = "") -> None:
        self.position = _read_position(stored)

    @property
    def next_seq(self) -> int:
        """Return the least sequence that has not been read."""
        return self.position.seq + 1

    def open(self, created: str, server: str, last_seq: int) -> bool:
        """Take in the stream's state; return whether it must be read from its start."""
        now = self.position
        if (now.created, now.server) == (created, server) and now.seq <= last_seq:
            return False
        self.position = now._replace(created=created, server=server, seq=0)
        return True

    def read(self, message: StreamMessage) -> bool:
        """Go past a message; return whether it is new: True also where nobody can tell."""
        now = self.position._replace(seq=message.seq)
        hub_stream, hub_seq = hub_place(message.headers)
        fresh = not hub_seq or hub_stream != now.hub_stream or hub_seq > now.hub_seq
        if fresh and hub_seq:
            now = now._replace(hub_stream=hub_stream, hub_seq=hub_seq)
        self.position = now
        return fresh

    def stored(self) -> str:
        """Return the position as the ledger keeps it."""
        return msgspec.json.encode(self.position).decode()


def hub_place(headers: bytes) -> tuple[str, int]:
    """Return the hub's stream (name and identity) and the sequence there; ("", 0) without one.

    The header is ``<stream> <seq> <filter> <transform> <subject> [<identity>]``.
    """
    for line in headers.split(b"\r\n"):
        if not line.startswith(SOURCE_HEADER):
            continue
        fields = line.removeprefix(SOURCE_HEADER).split()
        if len(fields) >= 2 and fields[1].isdigit():
            identity = fields[5] if len(fields) > 5 else b""
            return b" ".join((fields[0], identity)).decode(errors="replace"), int(fields[1])
    return "", 0


def _read_position(stored: str) -> DownlinkPosition:
    """Return a stored position; one that cannot be read means: from the start."""
    try:
        return msgspec.json.decode(stored or "[]", type=DownlinkPosition)
    except msgspec.DecodeError:
        return DownlinkPosition()
