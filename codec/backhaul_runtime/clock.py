"""Time as an argument: the only module that reads the machine's clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from uuid import UUID

# The plain monotonic clock stands still while a machine sleeps: hub time would be late by that, and the
# wall clock would seem to step.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Wall time for stamps, monotonic time for ages and deadlines. Tests bring a clock that they can move."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch, by the wall clock: it may jump."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment: never goes back."""
        ...


class SteadyClock(Clock, Protocol):
    """One that also tells whether its wall time jumps."""

    def steady_ns(self) -> int:
        """Return nanoseconds since the machine started, sleep included: never jumps or goes back.

        It is the same clock for every process of one boot.
        """
        ...


class SleepingClock(Clock, Protocol):
    """One by which a thread waits."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()  # noqa: TID251 - the one place

    def steady_ns(self) -> int:
        """Return nanoseconds since the machine started; a suspended machine's clock goes on."""
        return time.clock_gettime_ns(_STEADY)

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def boot_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the kernel's name for this start of the machine, "" where nobody gives it.

    The unit hides what is not of processes in /proc (ProcSubset=pid), and passes it on.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        pass
    try:
        # systemd writes it without dashes. Another name for one start would look like another machine's.
        return str(UUID(environ.get("BACKHAUL_BOOT_ID", "")))
    except ValueError:
        return ""
