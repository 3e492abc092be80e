"""Options that several subcommands share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="BACKHAUL_HUB_DIR",
    default=Path(),
    show_default="the current directory",
    help="The hub directory, made by `backhaul-hub init`.",
)

who_option = click.option(
    "--who",
    envvar="BACKHAUL_WHO",
    default="",
    metavar="NAME",
    help="Who writes: stands in the points' origin as hub:NAME.",
)


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
