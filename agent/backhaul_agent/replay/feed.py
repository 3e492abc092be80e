"""Points handed to a running agent, retried while it is busy, all counted.

Those with a time go in batches per node. Those without go one by one, as programs publish that have no
clock: the agent stamps them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from backhaul_agent.batch import FRAME_POINTS, FRAME_VALUE_BYTES
from backhaul_agent.errors import Code, NotKnownError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from backhaul_agent.client import Agent
    from backhaul_codec import Point

FLYING_MAX = 8
# These pass: the agent catches up, the disk is freed, the hub confirms.
PASSING = {Code.BUSY, Code.LEDGER_FULL, Code.STORAGE}
RETRY_S = 0.25
RETRY_S_MAX = 30.0


@dataclass(slots=True)
class Outcome:
    """What became of the points: kept, refused (and why), or not known for want of an answer."""

    kept: int = 0
    not_known: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last_refusal: str = ""

    @property
    def complete(self) -> bool:
        """Whether every point is kept."""
        return not self.not_known and not self.refused


class Feed:
    """Feeds one agent; `put` waits while too much is unanswered, `finish` for everything."""

    def __init__(self, agent: Agent) -> None:
        self.outcome = Outcome()
        self._agent = agent
        self._buffers: dict[str, list[Point]] = {}
        self._bytes: Counter[str] = Counter()
        self._flying: set[asyncio.Task[None]] = set()

    async def put(self, points: list[Point]) -> None:
        """Add a row's points; send the buffers that are full."""
        for point in points:
            buffer = self._buffers.setdefault(point.node, [])
            buffer.append(point)
            if isinstance(point.value, str | bytes):
                self._bytes[point.node] += len(point.value)
            if len(buffer) >= FRAME_POINTS or self._bytes[point.node] >= FRAME_VALUE_BYTES:
                await self._send(point.node)

    async def put_untimed(self, points: list[Point]) -> None:
        """Publish a row without a time, for the agent to stamp; the points' own times are not sent.

        After everything before it is answered, and answered before anything else is sent: stamps are
        given in the order of the rows, whatever has to be tried again.
        """
        await self.flush()
        await self._land(0)
        publishing = (
            partial(self._agent.publish, point.node, point.type, point.value, key=point.key)
            for point in points
        )
        await asyncio.gather(*(self._publish(publish, 1) for publish in publishing))

    async def flush(self) -> None:
        """Send every buffer, however small."""
        for node in list(self._buffers):
            await self._send(node)

    async def finish(self) -> Outcome:
        """Send what is left and return what became of everything."""
        await self.flush()
        await self._land(0)
        return self.outcome

    async def _send(self, node: str) -> None:
        points = self._buffers.pop(node, [])
        self._bytes.pop(node, None)
        if points:
            publish = partial(self._agent.publish_frame, node, points)
            work = self._publish(publish, len(points))
            self._flying.add(asyncio.get_running_loop().create_task(work))
            await self._land(FLYING_MAX - 1)

    async def _publish(self, publish: Callable[[], Awaitable[object]], points: int) -> None:
        """Publish so many points, all or none, again and again while the agent is only busy."""
        waited_s = 0.0
        while True:
            try:
                await publish()
                self.outcome.kept += points
            except RefusedError as error:
                if error.code in PASSING and waited_s < RETRY_S_MAX:
                    await asyncio.sleep(RETRY_S)
                    waited_s += RETRY_S
                    continue
                self.outcome.refused[error.code] += points
                self.outcome.last_refusal = error.message
            except NotKnownError:
                # Sent again, the points might be there twice: leave them, and say so.
                self.outcome.not_known += points
            return

    async def _land(self, flying_max: int) -> None:
        while len(self._flying) > flying_max:
            done, self._flying = await asyncio.wait(
                self._flying, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
