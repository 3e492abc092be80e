"""A vehicle that misbehaves: enrolled as it should be, and then whatever its link carries, for ever.

    python -m tests.support.rude_leaf DOCUMENT KIND BYTES_S

It speaks the leaf protocol by hand, with none of a leaf server's own checks, and comes back as often
as it is cut. A process of its own (`RudeVehicle`), so that only what reaches the hub slows others down.
Not covered: what it could do with other vehicles' keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from backhaul_codec.protocol import blobs
from backhaul_codec.protocol.credentials import parse_seed
from backhaul_codec.protocol.identity import decode_identity
from tests.support.rig.parts import Part, program, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_codec.protocol.identity import Identity
    from tests.support.rig.parts import HubRig

LINK_BYTES_S = 100e6 / 8
_BLOCK_BYTES = 1 << 16
_AGAIN_S = 0.05
_LOGIN_S_MAX = 10.0
_INFO_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Abuse:
    """One way to misbehave: what is sent again and again."""

    name: str
    block: Callable[[Identity], bytes]
    """Makes some 64 KB of it."""


def small_messages(identity: Identity) -> bytes:
    """Return messages on the device's own delivery subject that no consumer has sent."""
    return _filled(_message(_delivery(identity), b"x"))


def huge_messages(identity: Identity) -> bytes:
    """Return one as large as a vehicle may send."""
    return _message(_delivery(identity), bytes(2 << 20))


def larger_messages(identity: Identity) -> bytes:
    """Return one that is larger than it may."""
    return _message(_delivery(identity), bytes(3 << 20))


def clock_questions(identity: Identity) -> bytes:
    """Return questions for the time."""
    return _filled(_message(f"clk.{identity.device}", b'{"t1":1}'))


def artifact_questions(identity: Identity) -> bytes:
    """Return questions for an artifact."""
    question = blobs.encode(blobs.Find(1, "firmware"))
    return _filled(_message(f"blob.{identity.device}", question))


def resets(identity: Identity) -> bytes:
    """Return questions to set its durable on DOWN back."""
    durable = f"{identity.device}-{identity.token}"
    subject = f"hubapi.CONSUMER.RESET.{identity.down_stream}.{durable}"
    return _filled(_message(f"{subject} _INBOX_{identity.device}.x", b""))


def subscriptions(identity: Identity) -> bytes:
    """Return subscriptions, each to one more subject that the device may hear."""
    lines = (f"LS+ _INBOX_{identity.device}.{n}.{secrets.token_hex(4)}\r\n" for n in range(1500))
    return "".join(lines).encode()


_KINDS = (
    Abuse("small messages", small_messages),
    Abuse("huge messages", huge_messages),
    Abuse("messages that are too large", larger_messages),
    Abuse("questions for the time", clock_questions),
    Abuse("questions for artifacts", artifact_questions),
    Abuse("resets", resets),
    Abuse("subscriptions", subscriptions),
)
KINDS = {abuse.name: abuse for abuse in _KINDS}


class RudeLeaf:
    """Misbehaves for as long as it runs.

    Args:
        document: the identity document of an enrolled device.
        abuse: what to do.
        bytes_s: how much its link carries.
    """

    def __init__(self, document: Path, abuse: Abuse, bytes_s: float) -> None:
        self.identity = decode_identity(document.read_bytes())
        self.connects = 0
        self.sent_bytes = 0
        self.refused = 0
        """Logins that came to nothing."""
        self.complaints: set[str] = set()
        """What the server said as it hung up."""
        self._abuse = abuse
        self._bytes_s = bytes_s
        self._block = abuse.block(self.identity)

    async def run(self) -> None:
        """Misbehave, and print how it goes whenever a connection has ended."""
        while True:
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, ValueError
            ):
                await self._session()
            print(json.dumps(self.report()), flush=True)
            await asyncio.sleep(_AGAIN_S)

    async def _session(self) -> None:
        url = urlsplit(self.identity.leaf_urls[0])
        reader, writer = await asyncio.open_connection(
            url.hostname, url.port, limit=_INFO_BYTES_MAX
        )
        try:
            async with asyncio.timeout(_LOGIN_S_MAX):
                info = json.loads((await reader.readline()).partition(b" ")[2])
                writer.write(
                    b"CONNECT " + json.dumps(self._claims(info)).encode() + b"\r\nPING\r\n"
                )
                while (line := await reader.readline()) != b"PONG\r\n":
                    self._heed(line)
            self.connects += 1
            listening = asyncio.create_task(self._listen(reader, writer))
            try:
                await self._send(writer, listening)
            finally:
                listening.cancel()
        finally:
            writer.close()

    def report(self) -> dict[str, Any]:
        """Return what came of it so far."""
        return {
            "connects": self.connects,
            "refused": self.refused,
            "sent_bytes": self.sent_bytes,
            "complaints": sorted(self.complaints),
        }

    def _heed(self, line: bytes) -> None:
        if line.startswith(b"-ERR"):
            self.complaints.add(line[4:].decode(errors="replace").strip(" '\r\n"))
        if not line or line.startswith(b"-ERR"):
            self.refused += 1
            raise ConnectionError

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                self.complaints.add(line[4:].decode(errors="replace").strip(" '\r\n"))
            elif line.startswith((b"LMSG", b"HMSG")):
                await reader.readexactly(int(line.split()[-1]) + 2)

    async def _send(self, writer: asyncio.StreamWriter, listening: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        start_s, sent = loop.time(), 0
        while not listening.done():
            block = (
                self._abuse.block(self.identity)
                if self._abuse.block is subscriptions
                else self._block
            )
            writer.write(block)
            await writer.drain()
            sent += len(block)
            self.sent_bytes += len(block)
            await asyncio.sleep(start_s + sent / self._bytes_s - loop.time())

    def _claims(self, info: dict[str, Any]) -> dict[str, Any]:
        identity = self.identity
        claims: dict[str, Any] = {
            "name": secrets.token_hex(8),  # to be found by who logs in, not by what it says
            "server_id": secrets.token_hex(8),
            "domain": identity.device,
            "headers": True,
            "protocol": 1,
        }
        sign = parse_seed(identity.seed).sign
        return claims | {"jwt": identity.jwt, "sig": sign(info["nonce"])}


def _delivery(identity: Identity) -> str:
    return f"dlv.{identity.device}.{identity.token}_bulk"


def _filled(message: bytes) -> bytes:
    return message * (_BLOCK_BYTES // len(message))


def _message(subject: str, payload: bytes) -> bytes:
    return b"LMSG %s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)


class RudeVehicle:
    """An enrolled vehicle whose owner has other ideas; a process of its own."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @classmethod
    async def enrol(
        cls, hub: HubRig, device: str, kind: str, bytes_s: float = LINK_BYTES_S
    ) -> Self:
        """Enrol it with the real command, as any other."""
        command = ["add-device", device, "--dir", str(hub.directory)]
        await run_to_end([program("backhaul-hub"), *command])
        document = hub.directory / "devices" / device / "identity.json"
        words = [sys.executable, "-m", "tests.support.rude_leaf", str(document), kind, str(bytes_s)]
        return cls(Part(f"rude {device}", words, hub.directory.parent / f"{device}.log"))

    @property
    def report(self) -> dict[str, Any]:
        """What came of it until a connection ended last."""
        lines = self.part.logged().decode().splitlines()
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return found


def main() -> None:
    """Misbehave until ended."""
    document, kind, bytes_s = sys.argv[1:]
    leaf = RudeLeaf(Path(document), KINDS[kind], float(bytes_s))

    async def until_ended() -> None:
        running = asyncio.create_task(leaf.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running
        print(json.dumps(leaf.report()), flush=True)

    asyncio.run(until_ended())


if __name__ == "__main__":
    main()
