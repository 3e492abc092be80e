"""`backhaul-hub commands [VID]`: List the newest commands, and where they stand."""

from __future__ import annotations

from typing import Any

import click

from backhaul_codec.state.point_text import columns, utc
from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._options import access_option, json_option
from backhaul_hub.cli._printing import print_json


@click.command("commands")
@click.argument("device", metavar="[VID]", required=False)
@access_option
@click.option("--unfinished", is_flag=True, help="Only those that are not over.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="The newest so many.",
)
@json_option
def command_list(
    device: str | None, access: Access, unfinished: bool, limit: int, as_json: bool
) -> None:
    """List the newest commands, of all devices or of VID, and where they stand."""
    question = {"device": device, "unfinished": unfinished, "limit": limit}
    found = ask(access, "commands", question, reads=True)["commands"]
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: list[dict[str, Any]]) -> None:
    if not found:
        click.echo("no commands", err=True)
        return
    rows = [("DEVICE", "ID", "NAME", "STATE", "QUEUED", "SENT", "ACCEPTED", "ENDED", "ERROR")]
    rows += [(*_cells(each), each.get("error", "")) for each in found]
    click.echo("\n".join(columns(rows)))


def _cells(command: dict[str, Any]) -> list[str]:
    times = (command.get(f"{state}_ns") for state in ("queued", "sent", "accepted", "ended"))
    named = [command[name] for name in ("device", "id", "name", "state")]
    return named + [utc(time_ns) if time_ns else "-" for time_ns in times]
