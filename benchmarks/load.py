"""Readings to publish: numbered ones that can be counted again, and a vehicle's at its own pace."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from backhaul_codec import Point
from demo.simulate import Vehicle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backhaul_runtime.clock import Clock

NODE = "battery"
# Read together in one sampling pass, so they share a stamp, as sensors on a bus do.
SERIES = ("soc", "voltage", "current", "temp", "power", "speed", "odometer", "range")
FIRST_NS = 1_750_000_000_000_000_000
PASS_NS = 100_000_000
_POINTS_A_PASS = 14


def point(number: int) -> Point:
    """Return reading `number`: its series and stamp say which it is (see `StreamTally`)."""
    sampling_pass, series = divmod(number, len(SERIES))
    value = round(50 + 30 * math.sin(sampling_pass / 40 + series), 1)
    return Point(NODE, SERIES[series], FIRST_NS + sampling_pass * PASS_NS, value)


def points(count: int, first: int = 0) -> list[Point]:
    """Return readings `first` to `first + count - 1`."""
    return [point(number) for number in range(first, first + count)]


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
