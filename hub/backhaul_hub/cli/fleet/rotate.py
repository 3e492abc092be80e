"""`backhaul-hub rotate VID`: Give device VID another key, over the air."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._printing import log_to_stderr


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
    done = act(directory, "rotate", {"device": device, "again": again})
    rotation, begun = done["rotation"], done["begun"]
    if as_json:
        click.echo(json.dumps(rotation | {"begun": begun}))
    elif begun:
        click.echo(f"{device} is asked for another key. How far it is: backhaul-hub devices")
    else:
        click.echo(f"{device} is at it already: {rotation['state']}. To begin anew: --again")
        if rotation[
            "public_key"
        ]:  # what it says of a login that it was given may be on its way still
            has = "has" if rotation["state"] == "written" else "may have"
            click.echo(
                f"It {has} the new login only, which that revokes: see docs/enrolment.md first"
            )
    if problem := done["problem"]:
        click.echo(f"The control plane was not told ({problem}); it asks when it starts.", err=True)
