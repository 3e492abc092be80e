"""`backhaul-agent leaf-check`: Say whether restarting the leaf server now would heal it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from backhaul_agent.cli.options import DEFAULT_CONFIG, server_options
from backhaul_agent.client.client import connect
from backhaul_agent.enrol.vehicle_files import LEAF_CONF
from backhaul_agent.leaf.config_text import store_dir_of
from backhaul_agent.leaf.store_health import needs_restart


@click.command(name="leaf-check")
@server_options
def command(login: dict[str, Any]) -> None:
    """Say whether restarting the leaf server now would heal it: exit 0 if so, else 1.

    A nats-server whose disk was full writes the streams concerned only after a restart. Meant for
    ExecCondition= of backhaul-leaf-check.service; run it as a user that may see the server's store.
    """
    config = click.get_current_context().params["config"] or DEFAULT_CONFIG
    failed = asyncio.run(_ask(login))["leaf"]["failed_streams"]
    yes, reason = needs_restart(failed, store=_store(config.with_name(LEAF_CONF)))
    click.echo(reason)
    sys.exit(0 if yes else 1)


def _store(leaf_conf: Path) -> Path | None:
    """Return where the leaf server has its streams, None where its file does not say so to us."""
    try:
        said = store_dir_of(leaf_conf.read_text())
    except OSError:
        return None
    return Path(said) if said else None


async def _ask(login: dict[str, Any]) -> dict[str, Any]:
    async with connect(**login) as agent:
        return await agent.status()
