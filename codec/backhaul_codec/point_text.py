"""Show points for people, alike on both ends. Nothing that a terminal would obey comes out of it.

A point is a dict here, as both ends' services have it in JSON.
"""

import json
from datetime import UTC, datetime
from typing import Any

from backhaul_codec.subjects import encode_token


def line(point: dict[str, Any]) -> str:
    """Return a point as one line: when, which, what, by whom."""
    return "  ".join((utc(point["time"]), path(point), value(point), origin(point)))


def table(points: list[dict[str, Any]]) -> list[str]:
    """Return points as lines in columns."""
    rows = [(path(point), value(point), utc(point["time"]), origin(point)) for point in points]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def path(point: dict[str, Any]) -> str:
    """Return a point's series as it is written: `[parent>]node.type[.key]`."""
    names = [point["node"], point["type"], *([point["key"]] if point["key"] else [])]
    series = ".".join(encode_token(name) for name in names)
    return f"{encode_token(point['parent'])}>{series}" if point.get("parent") else series


def value(point: dict[str, Any]) -> str:
    """Return a point's value, or that it is deleted."""
    if point["tombstone"] % 2:
        return "(deleted)"
    found = point["value"]
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if text.isprintable() and text else json.dumps(found)


def utc(time_ns: int) -> str:
    """Return a time in UTC, to the millisecond; `time_ns` since the Unix epoch."""
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03}Z"


def origin(point: dict[str, Any]) -> str:
    """Return who wrote a point."""
    found: str = point["origin"] or "vehicle"
    return found if found.isprintable() else json.dumps(found)
