"""`backhaul-hub revoke VID`: Shut device VID out for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._printing import log_to_stderr
from backhaul_hub.errors import HubError


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
    revoked = act(directory, "revoke", {"device": device})
    problem = revoked.pop("problem")
    if as_json:
        click.echo(json.dumps(revoked | {"cut": not problem}))
    else:
        _print(revoked)
    if problem:
        raise HubError(
            f"{device} is revoked in hub.db, but not every server was told: {problem}",
            hint=f"see that the servers run, then again: backhaul-hub revoke {device}",
        )


def _print(revoked: dict[str, Any]) -> None:
    device = revoked["device"]
    if revoked["before"]:
        click.echo(f"{device} was revoked already.")
    elif revoked["public_key"]:
        click.echo(f"{device} is shut out. Its key will never be let in again.")
    if revoked["tokens"]:
        click.echo(f"A token for {device} that nobody had used is void.")
    click.echo(
        f"What {device} has sent stays, in the streams and in the history. To let it in again, with"
        f" another key: backhaul-hub enrol {device}"
    )
