"""`backhaul-agent`: one file a subcommand, in `vehicle` and `values`."""

from __future__ import annotations

import click

from backhaul_agent.errors import AgentError
from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import Subcommands, run


@click.group(
    cls=Subcommands,
    program="backhaul-agent",
    rooms=[f"backhaul_agent.cli.{room}" for room in ("vehicle", "values")],
    lacking=("replay",),
)
@click.version_option(package_name="backhaul")
def cli() -> None:
    """Run and inspect the part of backhaul that lives on the vehicle."""


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-agent", AgentError, MappingError)
