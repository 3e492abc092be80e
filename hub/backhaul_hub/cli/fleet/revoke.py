"""`backhaul-hub revoke VID`: Shut device VID out for ever."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click
import structlog

from backhaul_hub.cli._logs import log_to_stderr
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._tell import tell_hub
from backhaul_hub.config import load
from backhaul_hub.enrol.revoke import Revoked, leave_for_servers, revoke_device
from backhaul_hub.errors import HubError
from backhaul_runtime.clock import SystemClock

log = structlog.get_logger(__name__)


@click.command()
@click.argument("device", metavar="VID")
@directory_option
@click.option("--json", "as_json", is_flag=True, help="What was done, for programs.")
def revoke(device: str, directory: Path, as_json: bool) -> None:
    """Shut device VID out for ever: its link is cut at once, its key and its tokens are void.

    What it has sent stays, and so does its place in the tree. `enrol` lets it in again, with another
    key. A second time changes nothing and tells the servers again.
    """
    log_to_stderr()
    revoked, problem = asyncio.run(_revoke(directory, device))
    if as_json:
        click.echo(json.dumps(asdict(revoked) | {"cut": problem is None}))
    else:
        _print(revoked)
    if problem:
        raise HubError(
            f"{device} is revoked in hub.db, but not every server was told: {problem}",
            hint=f"see that the servers run, then again: backhaul-hub revoke {device}",
        )


async def _revoke(directory: Path, device: str) -> tuple[Revoked, str | None]:
    config, clock = load(directory), SystemClock()
    revoked = await revoke_device(directory, config, clock, device)
    log.info("revoked", **asdict(revoked))
    problem = await tell_hub(directory, config)
    if problem and await leave_for_servers(directory, config, clock):
        problem = None
    return revoked, problem


def _print(revoked: Revoked) -> None:
    device = revoked.device
    if revoked.before:
        click.echo(f"{device} was revoked already.")
    elif revoked.public_key:
        click.echo(f"{device} is shut out. Its key will never be let in again.")
    if revoked.tokens:
        click.echo(f"A token for {device} that nobody had used is void.")
    click.echo(
        f"What {device} has sent stays, in the streams and in the history. To let it in again, with"
        f" another key: backhaul-hub enrol {device}"
    )
