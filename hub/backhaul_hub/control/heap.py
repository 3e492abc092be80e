"""The long-lived objects of the control plane, kept out of Python's search for garbage.

The search for cycles looks at every object that there is: of 100,000 vehicles for more than a second, again and
again, while nothing else runs. Nearly all objects stay for good, and references free the others. So all that were
loaded at the start are taken out, and later, ever more seldom, all that have come since.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

from backhaul_hub.control.subsystem import Subsystem, Tasks

_FIRST_S, _LONGEST_S = 60.0, 86_400.0
# A turn makes a hundred thousand objects that last until it is stored: by Python's own thresholds each turn is searched a dozen times.
# So as many may come as are a twentieth of all that stay: garbage in cycles adds no more to them before it is found.
_FEWEST, _PART = 20_000, 20


class Heap(Subsystem):
    """Sets this process's garbage collector, so only a process of its own is to have it.

    Args:
        sleep: as `asyncio.sleep`.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._sleep = sleep

    async def start(self) -> None:
        """Take out the objects that have been loaded."""
        _take_out()

    def tasks(self) -> Tasks:
        """Return the task that takes out later objects."""
        yield self._run()

    async def _run(self) -> None:
        # A cycle that is alive while this happens is never found again: so each time it waits for twice as long.
        wait_s = _FIRST_S
        while True:
            await self._sleep(wait_s)
            _take_out()
            wait_s = min(2 * wait_s, _LONGEST_S)


def _take_out() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(max(_FEWEST, gc.get_freeze_count() // _PART), 20, 20)
