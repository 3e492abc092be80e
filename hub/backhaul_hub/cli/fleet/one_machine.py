"""`backhaul-hub one-machine VID`: Say that one machine alone uses the identity of VID."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backhaul_hub.cli._ask import Operator, ask
from backhaul_hub.cli._options import directory_option


@click.command(name="one-machine")
@click.argument("device", metavar="VID")
@directory_option
@click.option("--json", "as_json", is_flag=True, help="What is so now, for programs.")
def one_machine(device: str, directory: Path, as_json: bool) -> None:
    """Say that one machine alone uses the identity of VID: the one that was heard last.

    For when the other one is gone for good, or has an identity of its own, with all that it held at the
    hub or given up. What is missing then is lost as soon as that one machine says so. A second machine
    that is heard later is noticed as before.
    """
    said = ask(Operator(directory), "one-machine", {"device": device})
    if as_json:
        click.echo(json.dumps(said))
        return
    where = f" at {said['address']}" if said["address"] else ""
    click.echo(f"{device} is machine {said['machine']}{where} alone. What it has not, is lost.")
