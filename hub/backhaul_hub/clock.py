"""Where the hub takes time from, so that tests can bring their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

# The plain monotonic clock stands still while a machine sleeps: the wall clock would seem to step.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Wall time for stamps, monotonic time for waiting."""

    def now_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""


class SteadyClock(Clock, Protocol):
    """One that also tells whether its wall time jumps."""

    def steady_ns(self) -> int:
        """Return nanoseconds since the machine started, sleep included: never jumps or goes back."""


class SystemClock:
    """The machine's own clock."""

    def now_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()  # noqa: TID251 - the one place that reads it

    def steady_ns(self) -> int:
        """Return nanoseconds since the machine started, sleep included."""
        return time.clock_gettime_ns(_STEADY)


def boot_id() -> str:
    """Return the kernel's name for this start of the machine, "" where it gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def utc(clock: Clock) -> datetime:
    """Return wall time as calendars have it."""
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
