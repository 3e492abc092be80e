"""Many points of one node, packed into frames by the program that has them (see `client`)."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from backhaul_agent.stamps import stamp_ms
from backhaul_codec import Opaque, Point, Value
from backhaul_runtime.clock import Clock

FRAME_POINTS = 250
FRAME_VALUE_BYTES = 24 * 1024  # a frame goes before its texts and blobs outgrow the agent's limit
BATCHES_IN_FLIGHT = 32


class Publisher(Protocol):
    """The taker of a batch's frames: an `Agent`."""

    clock: Clock

    async def publish_frame(
        self, node: str, points: list[Point], *, own_stamps: bool = False
    ) -> int:
        """Have a frame kept. Returns how many points."""
        ...


class Batch:
    """Collects points of one node and sends them in frames, several at a time.

    A frame says of all its points whose their stamps are: points that this client stamps and points
    that came with a time go into different ones, so turns of both make small frames.

    ``kept`` counts what the agent has kept. Leaving the context waits for all of it.
    """

    def __init__(self, agent: Publisher, node: str, frame_points: int) -> None:
        self.kept = 0
        self._agent = agent
        self._node = node
        self._frame_points = frame_points
        self._points: list[Point] = []
        self._own_stamps = False
        self._value_bytes = 0
        self._flying: set[asyncio.Task[int]] = set()
        self._slots = asyncio.Semaphore(BATCHES_IN_FLIGHT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if exc_type is None:
            self._launch()
            await self._land(0)
        else:
            await self._give_up()

    def add(
        self,
        type: str,
        value: Value,
        *,
        key: str = "",
        time: int | None = None,
    ) -> None:
        """Add a point; without ``time`` it is stamped now, by this machine's clock, in ms.

        The agent corrects that stamp by what it knows of the machine's clock.
        Never waits: an endless batch grows in memory, use `put` for that.
        """
        own = time is None
        stamp = stamp_ms(self._agent.clock) if time is None else time
        point = Point(node=self._node, type=type, key=key, time=stamp, value=value)
        self._append(point, own_stamp=own)

    async def put(self, point: Point) -> None:
        """Add a point made before; waits while too many frames are unanswered.

        Raises:
            RefusedError, NotKnownError, NoAgentError: for a frame sent earlier.
        """
        if self._append(point):
            await self._land(BATCHES_IN_FLIGHT - 1)

    def _append(self, point: Point, *, own_stamp: bool = False) -> bool:
        """Add a point; return whether that filled a frame, which is then on its way."""
        if own_stamp is not self._own_stamps:
            self._launch()
            self._own_stamps = own_stamp
        self._points.append(point)
        value = point.value
        if isinstance(value, str | bytes):
            self._value_bytes += len(value)
        elif isinstance(value, Opaque):
            self._value_bytes += len(value.data)
        full = len(self._points) >= self._frame_points or self._value_bytes >= FRAME_VALUE_BYTES
        if full:
            self._launch()
        return full

    def _launch(self) -> None:
        points, self._points, self._value_bytes = self._points, [], 0
        if points:
            send = self._send(points, own_stamps=self._own_stamps)
            self._flying.add(asyncio.get_running_loop().create_task(send))

    async def _send(self, points: list[Point], *, own_stamps: bool) -> int:
        async with self._slots:
            return await self._agent.publish_frame(self._node, points, own_stamps=own_stamps)

    async def _land(self, flying_max: int) -> None:
        """Wait until at most ``flying_max`` frames are unanswered; raise the first failure."""
        while len(self._flying) > flying_max:
            done, _ = await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
            done &= self._flying  # other tasks may have added some meanwhile, and counted others
            self._flying -= done
            failures = [error for task in done if (error := task.exception()) is not None]
            self.kept += sum(task.result() for task in done if task.exception() is None)
            if failures:
                await self._give_up()
                raise failures[0]

    async def _give_up(self) -> None:
        """Let go of frames on their way; they may still be kept, and a counted one counts as kept."""
        flying, self._flying = self._flying, set()
        for task in flying:
            task.cancel()
        results = await asyncio.gather(*flying, return_exceptions=True)
        self.kept += sum(result for result in results if isinstance(result, int))
