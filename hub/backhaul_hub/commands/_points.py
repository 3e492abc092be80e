"""Showing points, for the subcommands that do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from backhaul_codec.subjects import encode_token


def print_points(points: list[dict[str, Any]]) -> None:
    """Print a table of points as the hub's services give them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not points:
        click.echo("no points", err=True)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("SERIES", "VALUE", "TIME", "ORIGIN"):
        table.add_column(heading)
    for point in points:
        # Text, so that what a value says is never taken for markup.
        table.add_row(
            *(Text(cell) for cell in (path(point), value(point), time(point), origin(point)))
        )
    Console(soft_wrap=True).print(table)


def path(point: dict[str, Any]) -> str:
    """Return a point's series as it is written: `[parent>]node.type[.key]`."""
    names = [point["node"], point["type"], *([point["key"]] if point["key"] else [])]
    series = ".".join(encode_token(name) for name in names)
    return f"{encode_token(point['parent'])}>{series}" if point.get("parent") else series


def value(point: dict[str, Any]) -> str:
    """Return a point's value for people; nothing that a terminal would obey."""
    if point["tombstone"] % 2:
        return "(deleted)"
    found = point["value"]
    if not isinstance(found, str):
        return json.dumps(found, ensure_ascii=False)
    return found if found.isprintable() and found else json.dumps(found)


def time(point: dict[str, Any]) -> str:
    """Return a point's time in UTC, to the millisecond."""
    return utc(point["time"])


def utc(time_ns: int) -> str:
    """Return a time in UTC, to the millisecond; ns since the Unix epoch."""
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
