"""The one place where this package looks at the clock; everything else takes one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock and sleep, all in seconds unless named otherwise."""

    def now_ns(self) -> int:
        """Return wall-clock time, ns since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point, never going back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Return wall-clock time, ns since the Unix epoch."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Return the monotonic clock, seconds."""
        return time.monotonic()  # noqa: TID251 - this class is the Clock that others take

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
