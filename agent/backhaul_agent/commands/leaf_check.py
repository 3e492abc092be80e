"""`backhaul-agent leaf-check`: whether the leaf server should be restarted now."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from backhaul_agent.client import connect
from backhaul_agent.commands.options import server_options
from backhaul_agent.leaf_store import needs_restart


@click.command(name="leaf-check")
@server_options
def command(login: dict[str, Any]) -> None:
    """Say whether restarting the leaf server now would heal it: exit 0 if so, else 1.

    A nats-server whose disk was full writes the streams concerned only after a restart. Meant for
    ExecCondition= of backhaul-leaf-check.service; run it as a user that may see the server's store.
    """
    yes, reason = needs_restart(asyncio.run(_ask(login))["leaf"]["failed_streams"])
    click.echo(reason)
    sys.exit(0 if yes else 1)


async def _ask(login: dict[str, Any]) -> dict[str, Any]:
    async with connect(**login) as agent:
        return await agent.status()
