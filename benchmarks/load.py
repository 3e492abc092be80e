"""Readings to publish: a simulated vehicle's, at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from backhaul_codec import Point
from demo.simulate import Vehicle

if TYPE_CHECKING:
    from backhaul_runtime.clock import Clock

_POINTS_A_PASS = 14


T = TypeVar("T")


async def drive(
    device: str, points_per_s: float, clock: Clock
) -> AsyncIterator[dict[str, list[Point]]]:
    """Yield a simulated vehicle's sampling passes, node to points, in real time and for ever.

    The clock stamps them, in ms; the event loop's clock paces them.
    """
    vehicle = Vehicle(device, seed=1)
    loop = asyncio.get_running_loop()
    step_s = _POINTS_A_PASS / points_per_s
    due_s = loop.time()
    while True:
        due_s += step_s
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        yield vehicle.sample(clock.now_ns() // 1_000_000 * 1_000_000, step_s)


@asynccontextmanager
async def working(
    load: AsyncIterator[T], take: Callable[[T], Awaitable[object]]
) -> AsyncIterator[None]:
    """Have each piece of a load taken meanwhile; at the end, wait until the last was."""
    stop = asyncio.Event()

    async def go() -> None:
        async for piece in load:
            await take(piece)
            if stop.is_set():
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(go())
        yield
        stop.set()
