"""The time that a program gives its readings, and its word on the clock behind it."""

from __future__ import annotations

from backhaul_runtime.clock import Clock

# What a program may say of the clock behind its times, and the header in which it does.
CLOCK_HEADER = "Backhaul-Clock"
SYSTEM, UNSET_CLOCK = "system", "unset"


def stamp_ms(clock: Clock) -> int:
    """Return now in nanoseconds, at millisecond resolution.

    Jitter below the sensor's resolution costs 3 bytes a point in a frame and says nothing.
    """
    return clock.now_ns() // 1_000_000 * 1_000_000
