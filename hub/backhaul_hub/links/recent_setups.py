"""When a device's source on DOWN was last set up: it may have passed over some of its messages.

Nobody on the vehicle could know that (ADR 1, case 3), and where the link was away for less than a
second its agent does not even know of the link. So the hub tells again, once, a while after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backhaul_runtime.clock import Clock

SETTLED_S = 5.0
"""How long after it was reset a source stands, or its leaf has asked for another reset."""


class RecentSetups:
    """Calls for each source that was set up, once it stands. Costs nothing where none is.

    Args:
        tell_again: called with the device.
    """

    def __init__(self, clock: Clock, tell_again: Callable[[str], None]) -> None:
        self._clock = clock
        self._tell_again = tell_again
        self._due_s: dict[str, float] = {}  # by device, the soonest first
        self._noted = asyncio.Event()

    def note(self, device: str) -> None:
        """Take in that a device is connected (again), or that a source of it was reset.

        What an earlier set-up passed over is told after this one: told now it may be passed over too.
        """
        self._due_s.pop(device, None)  # so that it goes to the end
        self._due_s[device] = self._clock.monotonic_s() + SETTLED_S
        self._noted.set()

    def drop(self, device: str) -> None:
        """Take in that a device is gone: its source is set up anew when it is back."""
        self._due_s.pop(device, None)

    def look(self) -> float | None:
        """Call for all that are due; return in how many seconds the next is, None for none."""
        now_s = self._clock.monotonic_s()
        while self._due_s:
            device, due_s = next(iter(self._due_s.items()))
            if due_s > now_s:
                return due_s - now_s
            del self._due_s[device]
            self._tell_again(device)
        return None

    async def run(self) -> None:
        """Look whenever one is due; for ever."""
        while True:
            wait_s = self.look()
            if wait_s is None:
                self._noted.clear()
                await self._noted.wait()
            else:
                await asyncio.sleep(wait_s)
