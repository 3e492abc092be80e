"""A TCP relay that stands for a vehicle's radio link: it can be cut and healed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

_CHUNK_BYTES = 65_536


class Relay:
    """Forwards connections from a port of its own to `host:port`, until it is cut.

    `cut` resets what is open and refuses what comes: the link is gone and both ends notice.
    Counts bytes in both directions, so that a run can say what the link has carried.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.up_bytes = 0
        self.down_bytes = 0

    async def __aenter__(self) -> Self:
        await self.heal()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.cut()

    async def heal(self) -> None:
        """Let connections through (again), on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        # Aborted transports end their pumps; cancelling the tasks as well would be reported as an
        # error of the server's callback.
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far = await asyncio.open_connection(*self._target)
            self._writers.add(far)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, far, up=True))
                tasks.create_task(self._pump(far_reader, writer, up=False))
        except* (OSError, EOFError):
            pass  # one side is gone, which is what a link does
        finally:
            self._pairs.discard(task)
            for end in (writer, far):
                if end is not None:
                    self._writers.discard(end)
                    with contextlib.suppress(OSError):
                        end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if up:
                self.up_bytes += len(chunk)
            else:
                self.down_bytes += len(chunk)
            writer.write(chunk)
            await writer.drain()
        raise EOFError("closed by its peer")
