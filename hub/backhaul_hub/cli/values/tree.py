"""`backhaul-hub tree`: Draw the tree: groups, devices, and the nodes inside of them."""

from __future__ import annotations

import json

import click

from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._options import access_option, json_option


@click.command()
@access_option
@json_option
def tree(access: Access, as_json: bool) -> None:
    """Draw the tree: groups, devices, and the nodes inside of them."""
    answer = ask(access, "tree", reads=True)
    lines = answer.pop("lines")
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))
