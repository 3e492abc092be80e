"""`backhaul-agent watch`: Show current values, then every change as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import click

from backhaul_agent.cli.options import names_of, server_options
from backhaul_agent.client.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec.state import point_text


@click.command(name="watch")
@click.argument("series", metavar="[NODE[.TYPE[.KEY]]]", default="")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@server_options
def command(series: str, as_json: bool, login: dict[str, Any]) -> None:
    """Show heads, then every change of them as it comes, until interrupted.

    Who made a change stands at the end of its line: this vehicle, or somebody at the hub.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(login, names_of(series), as_json=as_json))


async def _watch(login: dict[str, Any], names: tuple[str, ...], *, as_json: bool) -> None:
    async with connect(**login) as agent:
        async for point in ConfigClient(agent).watch(*names):
            shown = json.dumps(point, ensure_ascii=False) if as_json else point_text.line(point)
            click.echo(shown)
