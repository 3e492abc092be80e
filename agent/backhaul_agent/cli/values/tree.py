"""`backhaul-agent tree`: Draw the tree of nodes."""

from __future__ import annotations

from typing import Any

import click

from backhaul_agent.cli.asking import ask, print_json
from backhaul_agent.cli.options import as_json_option, server_options
from backhaul_agent.client.config import ConfigClient


@click.command(name="tree")
@as_json_option
@server_options
def command(as_json: bool, login: dict[str, Any]) -> None:
    """Draw the tree of this vehicle's nodes, edges left out of it, and deleted nodes.

    An edge is left out where two ends, apart, made moves that together close a cycle.
    """
    answer = ask(login, lambda agent: ConfigClient(agent).tree())
    lines = answer.pop("lines")
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(lines))
