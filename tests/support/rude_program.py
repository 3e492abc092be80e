"""A local program that misbehaves: logged in as it should be, and then all that it can, for ever.

    python -m tests.support.rude_program URL KEYFILE KIND SUBJECT

It speaks NATS by hand and sends the same block again and again, so that no other program on the machine is
faster. It comes back as often as it is cut. What it is answered it reads and forgets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from backhaul_codec.protocol.credentials import parse_seed

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK_BYTES = 1 << 16
_AGAIN_S = 0.05
_LOGIN_S_MAX = 10.0
_READ_BYTES = 1 << 18
INBOX = b"_INBOX.rude.1"


@dataclass(frozen=True, slots=True)
class Rude:
    """One way to misbehave: what is published, and whether an answer is wanted."""

    payload: Callable[[], bytes]
    reply: bytes = b""


def _small() -> bytes:
    return b"1.5"


def _large() -> bytes:
    return b'"' + bytes(1 << 20).replace(b"\0", b"x") + b'"'


KINDS = {
    "small": Rude(_small),
    "small-asking": Rude(_small, INBOX),
    "large": Rude(_large),
    "large-asking": Rude(_large, INBOX),
}


class RudeProgram:
    """Misbehaves for as long as it runs."""

    def __init__(self, url: str, key: Path, rude: Rude, subject: str) -> None:
        self.connects = 0
        self.sent = 0
        self.complaints: set[str] = set()
        """What the server said as it hung up."""
        self._url = urlsplit(url)
        self._login = parse_seed(key.read_text())
        payload = rude.payload()
        head = b"PUB %s " % subject.encode() + (rude.reply + b" " if rude.reply else b"")
        message = head + b"%d\r\n%s\r\n" % (len(payload), payload)
        self._in_block = max(1, _BLOCK_BYTES // len(message))
        self._block = message * self._in_block

    async def run(self) -> None:
        """Misbehave, and come back whenever a connection has ended."""
        while True:
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, ValueError
            ):
                await self._session()
            await asyncio.sleep(_AGAIN_S)

    def report(self) -> dict[str, Any]:
        """Return what came of it so far."""
        return {
            "connects": self.connects,
            "sent": self.sent,
            "complaints": sorted(self.complaints),
        }

    async def _session(self) -> None:
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            async with asyncio.timeout(_LOGIN_S_MAX):
                info = json.loads((await reader.readline()).partition(b" ")[2])
                claims = {
                    "nkey": self._login.public_key,
                    "sig": self._login.sign(info["nonce"]),
                    "verbose": False,
                    "headers": True,
                    "no_responders": True,
                }
                hello = b"CONNECT " + json.dumps(claims).encode() + b"\r\n"
                writer.write(hello + b"SUB _INBOX.rude.* 1\r\nPING\r\n")
                while (line := await reader.readline()) != b"PONG\r\n":
                    if not line:
                        raise ConnectionError
            self.connects += 1
            reading = asyncio.create_task(self._read(reader, writer))
            try:
                while not reading.done():
                    writer.write(self._block)
                    await writer.drain()
                    self.sent += self._in_block
                    await asyncio.sleep(0)
            finally:
                reading.cancel()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            if b"PING\r\n" in data:
                writer.write(b"PONG\r\n")
            if (at := data.find(b"-ERR")) >= 0:
                self.complaints.add(data[at : at + 60].split(b"\r")[0].decode(errors="replace"))


def main() -> None:
    """Misbehave until ended, and print how it went."""
    url, key, kind, subject = sys.argv[1:]
    rude = RudeProgram(url, Path(key), KINDS[kind], subject)

    async def until_ended() -> None:
        running = asyncio.create_task(rude.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running
        print(json.dumps(rude.report()), flush=True)

    asyncio.run(until_ended())


if __name__ == "__main__":
    main()
