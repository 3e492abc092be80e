"""A relay with the rate and the delay of a slow radio link, that can also fall silent.

Modelled: bytes leave one after another at the link's rate, each direction for itself, and arrive half
a round trip later; what does not fit waits in the sender's socket, as behind a modem. A half-open
link: bytes stop, or are lost in one direction or both, while both connections stay. NOT modelled: loss, jitter, and TCP's own slow start.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tests.support.rig.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BYTES = 512  # 0.2 s of a link of 20 kbit/s
_CHUNK_S = 0.02  # of a faster one
_AT_ONCE_S = 0.001


class ShapedRelay(Relay):
    """Forwards at `rate_bytes_s` in each direction, half of `round_trip_s` late.

    A rate of None is no limit. `accepted` counts connections: a leaf that came back was gone.
    """

    def __init__(
        self, host: str, port: int, *, rate_bytes_s: float | None = None, round_trip_s: float = 0.0
    ) -> None:
        super().__init__(host, port)
        self.rate_bytes_s = rate_bytes_s
        self.round_trip_s = round_trip_s
        self.accepted = 0
        self.watch: Callable[[], Callable[[bytes], None]] | None = None
        """Called for each direction of each connection; what it returns is called with what the link has carried."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._forgotten: list[asyncio.Event] = []
        # By direction, up first: once it is set, the connections that were made before lose each byte.
        self._holes = {True: asyncio.Event(), False: asyncio.Event()}

    def fall_silent(self, *, forget: bool = False) -> None:
        """Stop forwarding; every connection stays open, and new ones are taken.

        With ``forget`` those open now never carry a byte again: only their ends can notice.
        """
        self._flowing.clear()
        if forget:
            self._forgotten.append(self._flowing)
            self._flowing = asyncio.Event()

    def swallow(self, *, up: bool, down: bool) -> None:
        """Lose all bytes of the connections that are open now, in these directions; new ones carry them."""
        for direction in [True] * up + [False] * down:
            self._holes[direction].set()
            self._holes[direction] = asyncio.Event()

    def flow_again(self) -> None:
        """Forward again, first what was under way."""
        self._flowing.set()

    async def cut(self) -> None:
        """Reset every connection, forgotten ones too, and refuse new ones."""
        for flowing in self._forgotten:
            flowing.set()  # their pumps can end; what they hold finds its connection reset
        await super().cut()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        await super()._forward(reader, writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        flowing, hole = self._flowing, self._holes[up]
        under_way: deque[tuple[float, bytes]] = deque()
        changed = asyncio.Event()
        seen = self.watch() if self.watch else None

        async def arrive() -> None:
            while True:
                while not under_way:
                    changed.clear()
                    await changed.wait()
                due_s, chunk = under_way.popleft()
                await asyncio.sleep(due_s - loop.time())
                await flowing.wait()
                if not chunk:
                    raise EOFError("closed by its peer")
                if hole.is_set():
                    continue
                self._count(len(chunk), up=up)
                if seen:
                    seen(chunk)
                writer.write(chunk)
                await writer.drain()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(arrive())
            await self._leave(reader, flowing, under_way, changed)

    async def _leave(
        self,
        reader: asyncio.StreamReader,
        flowing: asyncio.Event,
        under_way: deque[tuple[float, bytes]],
        changed: asyncio.Event,
    ) -> None:
        loop = asyncio.get_running_loop()
        free_s = loop.time()
        chunk = b"-"
        while chunk:
            rate, asked_s = self.rate_bytes_s, loop.time()
            chunk = await reader.read(max(_CHUNK_BYTES, int(rate * _CHUNK_S)) if rate else 65_536)
            await flowing.wait()
            lay_waiting = loop.time() < asked_s + _AT_ONCE_S
            if self.rate_bytes_s:
                # The line is kept busy where it was: sleeping too long is not made the link's fault.
                began_s = free_s if lay_waiting else max(loop.time(), free_s)
                free_s = began_s + len(chunk) / self.rate_bytes_s
                await asyncio.sleep(free_s - loop.time())
            else:
                free_s = loop.time()
            under_way.append((free_s + self.round_trip_s / 2, chunk))
            changed.set()

    def _count(self, count: int, *, up: bool) -> None:
        if up:
            self.up_bytes += count
        else:
            self.down_bytes += count
