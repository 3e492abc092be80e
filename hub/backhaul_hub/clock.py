"""Where the hub takes time from, so that tests can bring their own."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def boot_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the kernel's name for this start of the machine, "" where nobody gives it.

    The unit hides what is not of processes in /proc (ProcSubset=pid), and passes it on.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        pass
    try:
        # systemd writes it without dashes.
        return str(UUID(environ.get("BACKHAUL_BOOT_ID", "")))
    except ValueError:
        return ""


def utc(clock: Clock) -> datetime:
    """Return wall time as calendars have it."""
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
