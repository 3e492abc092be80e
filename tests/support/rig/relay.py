"""A TCP relay that stands for a vehicle's radio link: it can be cut and healed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Self

from tests.support.rig.ports import free_port

_CHUNK_BYTES = 65_536


class Relay:
    """Forwards connections from a port of its own to `host:port`, until it is cut.

    `cut` resets what is open and refuses what comes: the link is gone and both ends notice.
    Counts bytes in both directions, so that a run can say what the link has carried.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        # asyncio's own server loses sight of a connection that comes as it is closed.
        self._listener: socket.socket | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        # Not one of the system's: while the link is cut that could become anybody's.
        self.port = free_port()
        self.up_bytes = 0
        self.down_bytes = 0

    async def __aenter__(self) -> Self:
        await self.heal()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.cut()

    @property
    def connections(self) -> int:
        """Return how many connections are open now."""
        return len(self._pairs)

    async def heal(self) -> None:
        """Let connections through (again), on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._take, listener)
        self._listener = listener

    async def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for writer in list(self._writers):
            writer.transport.abort()
        # Aborted transports end their pumps; cancelling the tasks as well would be reported as an
        # error of the server's callback.
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def _take(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = listener.accept()
            task = asyncio.create_task(self._carry(connection))
            self._pairs.add(task)
            task.add_done_callback(self._pairs.discard)

    async def _carry(self, connection: socket.socket) -> None:
        if self._listener is None:  # cut since it came
            connection.close()
            return
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        self._writers.add(writer)
        try:
            if self._listener is not None:
                await self._forward(reader, writer)
        finally:
            self._end(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
            if far is not None:
                self._end(far)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        with contextlib.suppress(OSError):
            writer.close()

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
