"""Many vehicles' links to a hub without the vehicles: raw connections of the leaf protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any

from .errors import BenchmarkError

if TYPE_CHECKING:
    from backhaul_codec.credentials import Credentials

_ANSWER_S_MAX = 30.0
_LINE_BYTES_MAX = 1 << 20


class LeafLink:
    """One connection to a hub's leaf port, logged in; it does nothing but stay."""

    def __init__(self, name: str, login: Credentials) -> None:
        self.name = name
        self.claims = secrets.token_hex(8)
        """What it says that its name is."""
        self.cut = asyncio.Event()
        """The server has ended it."""
        self.cut_s = 0.0
        """When; event loop's clock."""
        self.reason = ""
        """What the server said of that."""
        self._login = login
        self._pongs = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, port: int) -> bool:
        """Connect to loopback and log in; return whether the server let it in."""
        reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", port, limit=_LINE_BYTES_MAX
        )
        async with asyncio.timeout(_ANSWER_S_MAX):
            info = json.loads((await reader.readline()).partition(b" ")[2])
        claims: dict[str, Any] = {
            "jwt": self._login.jwt,
            "sig": self._login.sign(info["nonce"]),
            "name": self.claims,
            "domain": self.name,
            "headers": True,
            "protocol": 1,
        }
        self._writer.write(b"CONNECT " + json.dumps(claims).encode() + b"\r\n")
        self._reading = asyncio.create_task(self._read(reader))
        return await self.answers()

    async def answers(self) -> bool:
        """Tell whether the server still answers on this connection.

        Raises:
            BenchmarkError: it neither answers nor ends it.
        """
        assert self._writer is not None
        before = self._pongs
        with contextlib.suppress(OSError):
            self._writer.write(b"PING\r\n")
        deadline_s = asyncio.get_running_loop().time() + _ANSWER_S_MAX
        while self._pongs == before:
            if self.cut.is_set():
                return False
            if asyncio.get_running_loop().time() > deadline_s:
                raise BenchmarkError(f"the hub does not answer {self.name}")
            await asyncio.sleep(0.002)
        return True

    async def close(self) -> None:
        """End it."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        assert self._writer is not None
        try:
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    self._writer.write(b"PONG\r\n")
                elif line.startswith(b"PONG"):
                    self._pongs += 1
                elif line.startswith(b"-ERR"):
                    self.reason = line[4:].decode(errors="replace").strip(" '\r\n")
                elif line.startswith((b"LMSG", b"HMSG")):
                    await reader.readexactly(int(line.split()[-1]) + 2)
        except (OSError, asyncio.IncompleteReadError):
            pass
        self.cut_s = asyncio.get_running_loop().time()
        self.cut.set()
