"""A server that speaks just enough of NATS to take or refuse a login, and looks on at what clients leave open."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_REFUSAL = b"-ERR 'Authorization Violation'\r\n"


class MoodyServer:
    """Lets in or refuses, as `lets_in` says, or is silent, and never hangs up by itself.

    A real server hangs up on whom it refuses, which hides a socket that the client forgot.
    """

    def __init__(self) -> None:
        self.lets_in = True
        self.silent = False
        self.came = 0
        self.there: set[asyncio.StreamWriter] = set()
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[MoodyServer]:
        async with await asyncio.start_server(self._serve, "127.0.0.1") as server:
            self.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                yield self
            finally:
                self.hang_up()

    def hang_up(self) -> None:
        for each in self.there:
            each.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.there.add(writer)
        self.came += 1
        info = {"server_id": "M", "version": "2.15.1", "max_payload": 1 << 20, "headers": True}
        writer.write(
            b"INFO %s\r\n" % json.dumps(info | {"nonce": "n", "auth_required": True}).encode()
        )
        try:
            while line := await reader.readline():
                if line == b"PING\r\n" and not self.silent:
                    writer.write(b"PONG\r\n" if self.lets_in else _REFUSAL)
        finally:
            self.there.discard(writer)
            writer.close()
