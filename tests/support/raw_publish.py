"""Publishing bytes that no client would write."""

from __future__ import annotations

import asyncio
import contextlib


async def publish_raw(port: int, *lines: bytes) -> None:
    """Write lines of the protocol to a server on this machine; return once it has taken them in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        await reader.readline()
        options = b'{"verbose":false,"pedantic":false,"headers":true}'
        writer.write(b"CONNECT " + options + b"\r\n" + b"".join(lines) + b"PING\r\n")
        async with asyncio.timeout(60):
            assert await reader.readline() == b"PONG\r\n"
