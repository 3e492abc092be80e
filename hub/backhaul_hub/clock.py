"""Where the hub takes time from, so that tests can bring their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for waiting."""

    def now_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""


class SystemClock:
    """The machine's own clock."""

    def now_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()  # noqa: TID251 - the one place that reads it


def utc(clock: Clock) -> datetime:
    """Return wall time as calendars have it."""
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
