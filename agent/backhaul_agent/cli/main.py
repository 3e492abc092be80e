"""`backhaul-agent`: one file a subcommand, in `backhaul_agent.cli`."""

from __future__ import annotations

import click

from backhaul_agent.errors import AgentError
from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import Subcommands, run

COMMANDS = {
    "run": "Run the agent until it is told to stop.",
    "enrol": "Make this vehicle's files of what the hub says about it.",
    "adopt-ledger": "Go on with a ledger of another vehicle: this machine had its identity.",
    "app": "Say which local programs may log in, and what each may do.",
    "status": "Ask a running agent how it is.",
    "get": "Show the current values of state and configuration.",
    "set": "Write configuration: it reaches the hub, and wins there by its time.",
    "event": "Report an event: armed, failsafe ...",
    "watch": "Show current values, then every change as it comes.",
    "tree": "Draw the tree of nodes.",
    "node": "Create, move, mirror, delete and undelete nodes.",
    "history": "Print the points of a series that this vehicle still has.",
    "artifact": "Fetch files that the hub keeps, and send files there.",
    "leaf-check": "Say whether restarting the leaf server now would heal it.",
    "check-config": "Check a configuration file and say what is wrong with it.",
    "replay": "Feed a recording through a running agent.",
}


@click.group(cls=Subcommands, package="backhaul_agent.cli", summaries=COMMANDS)
@click.version_option(package_name="backhaul")
def cli() -> None:
    """Run and inspect the part of backhaul that lives on the vehicle."""


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-agent", AgentError, MappingError)
