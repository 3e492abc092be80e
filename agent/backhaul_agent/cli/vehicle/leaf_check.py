"""`backhaul-agent leaf-check`: Say whether restarting the leaf server now would heal it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.json import encode

from backhaul_agent.cli.options import DEFAULT_CONFIG, server_options
from backhaul_agent.client.client import connect
from backhaul_agent.enrol.vehicle_files import LEAF_CONF
from backhaul_agent.leaf import dial_check
from backhaul_agent.leaf.config_text import LEAF_LOG, leaf_urls_of, store_dir_of
from backhaul_agent.leaf.redial import does_not_dial
from backhaul_agent.leaf.redial_service import SUBJECT, NotDialing
from backhaul_agent.leaf.store_health import needs_restart


@click.command(name="leaf-check")
@server_options
def command(login: dict[str, Any]) -> None:
    """Say whether restarting the leaf server now would heal it: exit 0 if so, else 1.

    A nats-server whose disk was full writes the streams concerned only after a restart, and one that has
    stopped to dial the hub does not begin again. Meant for ExecCondition= of backhaul-leaf-check.service;
    run it as a user that may see the server's store, and reach the hub.
    """
    config = click.get_current_context().params["config"] or DEFAULT_CONFIG
    leaf_conf = config.with_name(LEAF_CONF)
    leaf = asyncio.run(_ask(login))["leaf"]
    yes, reason = needs_restart(leaf["failed_streams"], store=_store(leaf_conf))
    if not yes and leaf.get("redial", {}).get("suspect"):
        yes, reason = asyncio.run(_redial(login, leaf_conf))
    click.echo(reason)
    sys.exit(0 if yes else 1)


async def _redial(login: dict[str, Any], leaf_conf: Path) -> tuple[bool, str]:
    """Look whether the server has stopped to dial; the agent has the last word, and keeps count."""
    store = _store(leaf_conf)
    urls = leaf_urls_of(_text(leaf_conf))
    async with connect(**login) as agent:

        async def is_down() -> bool:
            return (await agent.status())["link"]["up"] is False

        found = await dial_check.look(urls, store and store / LEAF_LOG, is_down, dial_check.LOOK_S)
        yes, reason = does_not_dial(found)
        if yes:
            yes = bool((await agent.ask(SUBJECT, encode(NotDialing(reason))))["restart"])
    return yes, reason


def _store(leaf_conf: Path) -> Path | None:
    """Return where the leaf server has its streams, None where its file does not say so to us."""
    said = store_dir_of(_text(leaf_conf))
    return Path(said) if said else None


def _text(leaf_conf: Path) -> str:
    """Return the text of the file, empty where we cannot read it."""
    try:
        return leaf_conf.read_text()
    except OSError:
        return ""


async def _ask(login: dict[str, Any]) -> dict[str, Any]:
    async with connect(**login) as agent:
        return await agent.status()
