"""`backhaul-agent tree`: the tree of nodes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from backhaul_agent.cli.options import server_options
from backhaul_agent.client.client import connect
from backhaul_agent.client.config import ConfigClient


@click.command(name="tree")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@server_options
def command(as_json: bool, login: dict[str, Any]) -> None:
    """Draw the tree of this vehicle's nodes, edges left out of it, and deleted nodes.

    An edge is left out where two ends, apart, made moves that together close a cycle.
    """
    answer = asyncio.run(_ask(login))
    lines = answer.pop("lines")
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))


async def _ask(login: dict[str, Any]) -> dict[str, Any]:
    async with connect(**login) as agent:
        return await ConfigClient(agent).tree()
