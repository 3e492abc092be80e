"""`backhaul-agent get`: Show the current values of state and configuration."""

from __future__ import annotations

import sys
from typing import Any

import click

from backhaul_agent.cli.asking import ask, print_points
from backhaul_agent.cli.options import as_json_option, names_of, server_options
from backhaul_agent.client.config import ConfigClient


@click.command(name="get")
@click.argument("series", metavar="[NODE[.TYPE[.KEY]]]", default="")
@click.option("--deleted", is_flag=True, help="Show deleted points too.")
@as_json_option
@server_options
def command(series: str, deleted: bool, as_json: bool, login: dict[str, Any]) -> None:
    """Show heads as this vehicle holds them; exit 1 where there are none.

    Telemetry has no heads. A dot in a name is written %2E.
    """
    names = names_of(series)
    points = ask(login, lambda agent: ConfigClient(agent).get(*names, deleted=deleted))
    if as_json or points:
        print_points(points, as_json=as_json)
    else:
        click.echo("no such points", err=True)
    if not points:
        sys.exit(1)
