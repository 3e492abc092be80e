"""`backhaul-agent event`: Report an event: armed, failsafe ..."""

from __future__ import annotations

import json
from typing import Any

import click

from backhaul_agent.cli.asking import ask
from backhaul_agent.cli.options import server_options
from backhaul_codec.strict.json import JsonError, read_json


@click.command(name="event")
@click.argument("kind")
@click.option("--previous", default="", metavar="STATE", help="What was before.")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@click.option("--data", metavar="JSON", help="Anything else.")
@click.option("--json", "as_json", is_flag=True, help="Print what was kept, for programs.")
@server_options
def command(
    kind: str,
    previous: str,
    reason: str,
    data: str | None,
    as_json: bool,
    login: dict[str, Any],
) -> None:
    """Report an event of this KIND: armed, failsafe ...

    It is durable when this returns, and the hub has it now or when the link is back.
    """
    try:
        content = None if data is None else read_json(data)
    except JsonError as error:
        raise click.UsageError(f"--data is no JSON to be sent: {error}") from None
    ask(login, lambda agent: agent.event(kind, previous=previous, reason=reason, data=content))
    if as_json:
        said = {"kind": kind, "previous": previous, "reason": reason, "data": content}
        click.echo(json.dumps(said | {"kept": True}))
