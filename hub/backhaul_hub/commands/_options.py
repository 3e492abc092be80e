"""Options that several subcommands share."""

from __future__ import annotations

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
