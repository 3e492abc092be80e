"""Options that several subcommands share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from backhaul_hub.cli._ask import Access, Operator, Visitor

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="BACKHAUL_HUB_DIR",
    default=Path(),
    show_default="the current directory",
    help="The hub directory, made by `backhaul-hub init`.",
)

_creds_option = click.option(
    "--creds",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BACKHAUL_CREDS",
    help="Ask as a person, without a hub directory: the file of `backhaul-hub user add`.",
)
_server_option = click.option(
    "--server",
    metavar="URL",
    envvar="BACKHAUL_SERVER",
    default="nats://127.0.0.1:4222",
    show_default=True,
    help="The hub's server, with --creds: tls://hub.example.org:4222; of a cluster all, separated by"
    " commas.",
)
_ca_option = click.option(
    "--ca",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BACKHAUL_CA",
    help="By which authorities the server is known, with --creds: a copy of the hub's tls/ca.pem."
    "  [default: those of this machine]",
)


def awaited(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Have a command that is a coroutine run until it returns."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(command(*args, **options))

    return run


def access_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `access`: the hub directory's (`--dir`), or a person's (`--creds`)."""

    @wraps(command)
    def with_access(
        *args: Any,
        directory: Path,
        creds: Path | None,
        server: str,
        ca: Path | None,
        **options: Any,
    ) -> None:
        command(*args, access=_access(directory, creds, server, ca), **options)

    return directory_option(_creds_option(_server_option(_ca_option(with_access))))


def _access(directory: Path, creds: Path | None, server: str, ca: Path | None) -> Access:
    source = click.get_current_context().get_parameter_source
    if creds is None:
        return Operator(directory)
    if source("directory") is ParameterSource.COMMANDLINE:
        if source("creds") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--dir or --creds, not both")
        return Operator(directory)
    if source("ca") is ParameterSource.COMMANDLINE and not server.startswith("tls://"):
        raise click.UsageError("--ca is for a server that speaks TLS: --server tls://...")
    return Visitor(creds, server, ca)


json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")

who_option = click.option(
    "--who",
    envvar="BACKHAUL_WHO",
    default="",
    metavar="NAME",
    help="Who writes: stands in the points' origin as hub:NAME.",
)


_DURATION = re.compile(r"(\d+)([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_option(most_s: float) -> Callable[[click.Context, click.Parameter, str], float]:
    """Return a reader of durations such as 15m: it returns seconds, from 1 to `most_s`."""

    def read(context: click.Context, parameter: click.Parameter, value: str) -> float:
        found = _DURATION.fullmatch(value)
        seconds = int(found[1]) * _UNIT_S[found[2]] if found else 0
        if not 1 <= seconds <= most_s:
            most = f"{most_s / 86_400:g}d" if most_s >= 86_400 else f"{most_s / 3600:g}h"
            raise click.BadParameter(
                f"{value!r} is no duration such as 30m, 24h or 7d, of at most {most}",
                context,
                parameter,
            )
        return float(seconds)

    return read


F = TypeVar("F", bound="Callable[..., Any]")


def vehicle_options(function: F) -> F:
    """Add the options about a vehicle that is to be enrolled: its link, and its nodes."""
    for option in (
        click.option(
            "--node",
            "nodes",
            multiple=True,
            metavar="NAME",
            help="A node with streams of its own; several times, at most 64. All others share.",
        ),
        click.option(
            "--per-node/--per-device",
            default=None,
            help="Whether the nodes that --node names have streams of their own.  [default: per device]",
        ),
        click.option(
            "--link-mode",
            type=click.Choice(["always", "scheduled", "on-demand"]),
            default="always",
            show_default=True,
            help="When the link is up; other than always, the agent switches it.",
        ),
        click.option(
            "--link-kbit-s",
            default=1000.0,
            show_default=True,
            help="What the vehicle's link carries at its worst; bounds how much is in flight on it.",
        ),
    ):
        function = option(function)
    return function


def time_ns(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Read a time of ISO 8601 as ns since the Unix epoch; without an offset it is UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no time such as 2026-01-31 or 2026-01-31T14:00", context, parameter
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000
