"""Where the demonstration's readings come from: simulated vehicles, or a recording."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .simulate import Vehicle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backhaul_codec import Point

_PASSES_A_SECOND = 50
_PASSES_A_BATCH = 25


async def simulated(
    device: str, seed: int, now_ns: Callable[[], int]
) -> AsyncIterator[dict[str, list[Point]]]:
    """Yield a simulated vehicle's readings in real time, for ever; stamps are now's, in ms."""
    vehicle = Vehicle(device, seed)
    loop = asyncio.get_running_loop()
    step_s = 1 / _PASSES_A_SECOND
    due_s = loop.time()
    while True:
        batch: dict[str, list[Point]] = {}
        for _ in range(_PASSES_A_BATCH):
            due_s += step_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            time_ns = now_ns() // 1_000_000 * 1_000_000
            for node, points in vehicle.sample(time_ns, step_s).items():
                batch.setdefault(node, []).extend(points)
        yield batch
