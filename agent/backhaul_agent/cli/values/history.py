"""`backhaul-agent history`: Print the points of a series that this vehicle still has."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import click

from backhaul_agent.cli.options import server_options
from backhaul_agent.client.client import connect
from backhaul_agent.client.history import history
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec import CodecError
from backhaul_codec.state.json_values import parse_path
from backhaul_codec.state.point_text import shown, utc
from backhaul_codec.state.rfc3339 import time_ns_of
from backhaul_runtime.clock import Clock, SystemClock

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command(name="history")
@click.argument("series", metavar="NODE.TYPE[.KEY]")
@click.option("--from", "start", default="1h", show_default=True, help="Where to begin, see below.")
@click.option("--to", "end", default="now", show_default=True, help="Where to end; not included.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many points.")
@click.option("--json", "form", flag_value="json", help="One JSON object a line.")
@click.option("--csv", "form", flag_value="csv", help="Comma-separated, with a head line.")
@server_options
def command(
    series: str,
    start: str,
    end: str,
    limit: int | None,
    form: str | None,
    login: dict[str, Any],
) -> None:
    """Print the points of a series that this vehicle still has; exit 1 where there are none.

    A time is RFC 3339 with a zone (2026-01-31T12:00:00Z), nanoseconds since the Unix epoch, "now",
    or how long ago: 90s, 15m, 2h, 1d. A dot in a name is written %2E.
    """
    clock = SystemClock()
    try:
        names = parse_path(series)
    except CodecError as error:
        raise RefusedError(Code.BAD_SUBJECT, error.reason) from error
    span = read_time(start, clock), read_time(end, clock)
    count = asyncio.run(_print(login, names, span, limit, _printer(form)))
    if not count:
        click.echo("no such points", err=True)
        sys.exit(1)


async def _print(
    login: dict[str, Any],
    names: tuple[str, str, str],
    span: tuple[int, int],
    limit: int | None,
    show: Callable[[int, Any, str], None],
) -> int:
    count = 0
    async with connect(**login) as agent:
        found = history(agent, *names, from_ns=span[0], to_ns=span[1], limit=limit)
        async with aclosing(found) as pieces:
            async for piece in pieces:
                for time, value in zip(piece["times"], piece["values"], strict=True):
                    show(time, value, piece["dtype"])
                count += len(piece["times"])
    return count


def _printer(form: str | None) -> Callable[[int, Any, str], None]:
    if form == "json":
        return lambda time, value, dtype: click.echo(
            json.dumps({"time": time, "value": value, "dtype": dtype}, ensure_ascii=False)
        )
    if form == "csv":
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(["time_ns", "time", "value"])
        return lambda time, value, dtype: table.writerow([time, utc(time), _text(value)])
    return lambda time, value, dtype: click.echo(f"{utc(time)}  {shown(_text(value))}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_time(text: str, clock: Clock) -> int:
    """Return the ns since the Unix epoch that a time on the command line means.

    Raises:
        RefusedError: it is none.
    """
    if text == "now":
        return clock.now_ns()
    if text.removeprefix("-").isdigit():
        return int(text)
    if found := _AGO.fullmatch(text):
        return clock.now_ns() - round(float(found[1]) * _UNITS_S[found[2]] * 1e9)
    try:
        return time_ns_of(text)
    except ValueError as error:
        hint = "nor one of: now, 90s, 15m, 2h, 1d, nanoseconds since 1970"
        raise RefusedError(Code.BAD_TIME, f"{error}, {hint}") from None
