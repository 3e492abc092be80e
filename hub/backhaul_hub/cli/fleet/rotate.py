"""`backhaul-hub rotate VID`: Give device VID another key, over the air."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click
import structlog

from backhaul_hub.access.key_rotations import Rotation
from backhaul_hub.cli._logs import log_to_stderr
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._tell import tell_hub
from backhaul_hub.config import load
from backhaul_hub.enrol.rotate import begin_rotation
from backhaul_runtime.clock import SystemClock

log = structlog.get_logger(__name__)


@click.command()
@click.argument("device", metavar="VID")
@directory_option
@click.option("--again", is_flag=True, help="Begin anew where one is under way.")
@click.option("--json", "as_json", is_flag=True, help="Where it stands, for programs.")
def rotate(device: str, directory: Path, again: bool, as_json: bool) -> None:
    """Give device VID another key, over the air.

    The vehicle makes the key itself. The old one is revoked when the vehicle has logged in with the new
    one, and not before: one that is away for days, or cannot do it, goes on as it is. `devices` shows
    how far it is.
    """
    log_to_stderr()
    rotation, begun, problem = asyncio.run(_rotate(directory, device, again))
    if as_json:
        click.echo(json.dumps(asdict(rotation) | {"begun": begun}))
    elif begun:
        click.echo(f"{device} is asked for another key. How far it is: backhaul-hub devices")
    else:
        click.echo(f"{device} is at it already: {rotation.state}. To begin anew: --again")
        if rotation.public_key:  # what it says of a login that it was given may be on its way still
            has = "has" if rotation.state == "written" else "may have"
            click.echo(
                f"It {has} the new login only, which that revokes: see docs/enrolment.md first"
            )
    if problem:
        click.echo(f"The control plane was not told ({problem}); it asks when it starts.", err=True)


async def _rotate(directory: Path, device: str, again: bool) -> tuple[Rotation, bool, str | None]:
    rotation, begun = await begin_rotation(directory, SystemClock(), device, again=again)
    log.info("rotation_asked", device=device, rotation=rotation.id, begun=begun)
    return rotation, begun, await tell_hub(directory, load(directory))
