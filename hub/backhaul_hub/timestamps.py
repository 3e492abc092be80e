"""Times as texts that people and programs read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from backhaul_runtime.clock import Clock

_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_ns: int) -> str:
    """Return a time as text, exact to the ns, without zeros that say nothing."""
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    if not fraction:
        return f"{_whole(seconds)}Z"
    return f"{_whole(seconds)}.{fraction:09d}".rstrip("0") + "Z"


@lru_cache(4096)
def _whole(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def utc(clock: Clock) -> datetime:
    """Return wall time as calendars have it."""
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
