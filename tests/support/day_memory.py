"""What a process's memory has grown by, with a day of readings waiting and then draining."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.memory_watch import MemoryWatch

STEPS = 24
MOMENTS = {1: "1/24", 6: "1/4", 12: "1/2", STEPS: "all"}


def grown_mb(watch: MemoryWatch, name: str) -> float:
    """Return how much more a process had resident with more of the day, in MB.

    Growth counts from a quarter that waits, and from half of the drain: before that a server's
    caches fill, which hold what has passed in ten seconds however much there is.
    """
    waiting = [watch.last(name, f"{moment} waiting") for moment in MOMENTS.values()]
    draining = [watch.peak(name, f"draining to {moment}") for moment in MOMENTS.values()]
    return max(waiting[-1] - waiting[1], draining[-1] - draining[2])
