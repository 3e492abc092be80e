"""`backhaul-agent`: one file a subcommand, in `backhaul_agent.commands`."""

from __future__ import annotations

import importlib
import sys

import click

from backhaul_agent.errors import AgentError

# Imported when called: `run` must not pay for what only `replay` needs.
COMMANDS = {
    "run": "Run the agent until it is told to stop.",
    "enrol": "Make this vehicle's files of what the hub says about it.",
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


class _Commands(click.Group):
    """Finds a subcommand by its module: `check-config` is `commands/check_config.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"backhaul_agent.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands)
def cli() -> None:
    """Run and inspect the part of backhaul that lives on the vehicle."""


def main() -> None:
    """Run the command line; errors made on purpose go to standard error in one line each."""
    try:
        cli()
    except AgentError as error:
        click.echo(f"backhaul-agent: {error}", err=True)
        sys.exit(1)
