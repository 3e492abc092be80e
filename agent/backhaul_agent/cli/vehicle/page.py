"""`backhaul-agent page`: Show where the technician's page is, and its code."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backhaul_agent.cli.options import as_json_option, config_option
from backhaul_agent.config_file import load
from backhaul_agent.page.code_file import PageError, read_code

_ANY = ("0.0.0.0", "")  # noqa: S104 - to be told from an address


@click.command(name="page")
@config_option
@as_json_option
def command(path: Path, as_json: bool) -> None:
    """Show where the technician's page is, and its code; exit 1 where no agent serves it.

    The agent takes the code until it ends. Anybody who has the code sees all that this vehicle knows of itself.
    """
    config = load(path)
    if not config.page.listen:
        raise PageError("this agent serves no page", hint=f"say [page] listen in {path}")
    said = read_code(Path(config.ledger.path))
    host, _, port = said.listen.rpartition(":")
    shown = next(iter(config.page.names), "ADDRESS-OF-THIS-MACHINE") if host in _ANY else host
    url = f"http://{shown}:{port}/"
    if as_json:
        click.echo(json.dumps({"url": url, "code": said.code, "link": f"{url}#{said.code}"}))
        return
    click.echo(f"{url}\ncode  {said.code}\nor, with the code in it:  {url}#{said.code}")
