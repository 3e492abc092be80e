"""Times as texts that people and programs read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backhaul_runtime.clock import Clock

_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_ns: int) -> str:
    """Return a time as text, exact to the ns, without zeros that say nothing."""
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0").rstrip(".") + "Z"


def utc(clock: Clock) -> datetime:
    """Return wall time as calendars have it."""
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC)
