"""Times as RFC 3339 writes them, to the nanosecond. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from backhaul_codec.points import INT64_MAX, INT64_MIN

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)"
)


def time_ns_of(text: str) -> int:
    """Return the nanoseconds since the Unix epoch of an RFC 3339 time, exactly.

    Raises:
        ValueError: it is none, has no zone, or does not fit 64 bits.
    """
    found = _RFC3339.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:64]!r} is no RFC 3339 time with a zone")
    day, clock, fraction, zone = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    # Whole seconds by integers: a float timestamp would round nanoseconds away.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since.days * 86_400 + since.seconds
    time = seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    if not INT64_MIN <= time <= INT64_MAX:
        raise ValueError(f"{text[:64]!r} does not fit 64 bits of nanoseconds")
    return time
