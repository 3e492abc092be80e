"""`backhaul-agent get`: the current values of state and configuration."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from backhaul_agent.cli.options import names_of, server_options
from backhaul_agent.client.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec.state import point_text


@click.command(name="get")
@click.argument("series", metavar="[NODE[.TYPE[.KEY]]]", default="")
@click.option("--deleted", is_flag=True, help="Show deleted points too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@server_options
def command(series: str, deleted: bool, as_json: bool, login: dict[str, Any]) -> None:
    """Show heads as this vehicle holds them; exit 1 where there are none.

    Telemetry has no heads. A dot in a name is written %2E.
    """
    points = asyncio.run(_get(login, names_of(series), deleted=deleted))
    if as_json:
        click.echo(json.dumps({"points": points}, indent=2, ensure_ascii=False))
    elif points:
        click.echo("\n".join(point_text.table(points)))
    else:
        click.echo("no such points", err=True)
    if not points:
        sys.exit(1)


async def _get(
    login: dict[str, Any], names: tuple[str, ...], *, deleted: bool
) -> list[dict[str, Any]]:
    async with connect(**login) as agent:
        return await ConfigClient(agent).get(*names, deleted=deleted)
