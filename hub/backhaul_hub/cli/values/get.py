"""`backhaul-hub get VID [PATH]...`: Show the current value of every series of a device."""

from __future__ import annotations

import click

from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._options import access_option, json_option
from backhaul_hub.cli._printing import print_points


@click.command()
@click.argument("device", metavar="VID")
@click.argument("paths", metavar="[NODE[.TYPE[.KEY]]]...", nargs=-1)
@access_option
@click.option("--deleted", is_flag=True, help="Show deleted points too.")
@click.option("--telemetry", is_flag=True, help="Show the newest readings too.")
@json_option
def get(
    device: str,
    paths: tuple[str, ...],
    access: Access,
    deleted: bool,
    telemetry: bool,
    as_json: bool,
) -> None:
    """Show the heads of device VID as the hub holds them: the current value of every series.

    For points of groups, VID is `fleet`. Telemetry is merged into no head: of it the newest is
    shown that has come since the control plane started; the rest is in the history tables.
    """
    question = {"device": device, "paths": list(paths), "deleted": deleted, "telemetry": telemetry}
    print_points(ask(access, "get", question, reads=True), as_json=as_json)
