"""A radio link that is slow: so many bits a second each way, and a delay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from demo.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BYTES = 256


class SlowRelay(Relay):
    """Passes on `kbit_s` in each direction, every byte `delay_s` after it was sent.

    What does not fit waits in the senders' socket buffers, as it does in a modem's.
    """

    def __init__(self, host: str, port: int, kbit_s: float, delay_s: float) -> None:
        super().__init__(host, port)
        self._bytes_s = kbit_s * 1000 / 8
        self._delay_s = delay_s

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        free_s = loop.time()
        while chunk := await reader.read(_CHUNK_BYTES):
            free_s = max(free_s, loop.time()) + len(chunk) / self._bytes_s
            await asyncio.sleep(free_s - loop.time())
            if up:
                self.up_bytes += len(chunk)
            else:
                self.down_bytes += len(chunk)
            loop.call_later(self._delay_s, _write, writer, chunk)
        raise EOFError("closed by its peer")


def slow(kbit_s: float, delay_s: float) -> Callable[[str, int], Relay]:
    """Return what makes such a relay."""
    return lambda host, port: SlowRelay(host, port, kbit_s, delay_s)


def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    if not writer.is_closing():
        writer.write(chunk)
