"""`backhaul-hub reload`: Have every server and the control plane know all devices."""

from __future__ import annotations

from pathlib import Path

import click

from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option
from backhaul_hub.errors import HubError


@click.command()
@directory_option
def reload(directory: Path) -> None:
    """Have every server read its configuration again and know all devices, and the control plane, too.

    After hub.conf was changed, or a server was away. No link is cut by it.
    """
    if problem := act(directory, "reload", {"files": True})["problem"]:
        raise HubError(
            f"not all of the hub was told: {problem}", hint="see that its servers run, then again"
        )
    click.echo("every server has read its configuration")
