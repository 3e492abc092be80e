"""`backhaul-hub tokens [VID]`: List enrolment tokens that can still be used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from backhaul_codec.state.point_text import columns
from backhaul_hub.cli._act import pages
from backhaul_hub.cli._options import directory_option, json_option


@click.command()
@click.argument("device", metavar="[VID]", required=False)
@directory_option
@click.option(
    "--all", "every", is_flag=True, help="Used, expired and void ones of 90 days as well."
)
@json_option
def tokens(device: str | None, directory: Path, every: bool, as_json: bool) -> None:
    """List enrolment tokens that can still be used, of all devices or of VID.

    A token itself is shown when it is made and never again: the hub does not keep it. Neither
    server nor control plane has to run. One that should not be used is void after
    `backhaul-hub enrol VID`, which makes another, or `backhaul-hub revoke VID`.
    """
    question = {"device": device, "every": every}
    found = asyncio.run(pages(directory, "tokens", question))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found:
        headings = tuple(name.upper() for name in found[0])
        click.echo("\n".join(columns([headings, *(each.values() for each in found)])))
    else:
        click.echo("no tokens" if every else "no open tokens", err=True)
