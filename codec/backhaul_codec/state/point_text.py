"""Show points, and text in columns, alike on both ends. Nothing that a terminal would obey comes out.

A point is a dict here, as both ends' services have it in JSON.
"""

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from backhaul_codec.subjects import encode_token


def line(point: dict[str, Any]) -> str:
    """Return a point as one line: time, series, value, and writer."""
    return "  ".join((utc(point["time"]), path(point), value(point), origin(point)))


def table(points: list[dict[str, Any]]) -> list[str]:
    """Return points as lines in columns."""
    return columns(
        (path(point), value(point), utc(point["time"]), origin(point)) for point in points
    )


def columns(rows: Iterable[Iterable[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines, never wrapped: cut or broken text cannot be searched for or copied.

    Args:
        rows: cells of each, alike many.
        right: the columns, from 0, that stand flush right.
    """
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def shown(text: str) -> str:
    """Return somebody else's text as part of a line: as JSON if a terminal would obey any of it."""
    return text if text.isprintable() else json.dumps(text)


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
    return shown(text) if text else json.dumps(found)


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
    return shown(point["origin"] or "vehicle")
