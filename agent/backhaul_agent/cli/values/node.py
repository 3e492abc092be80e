"""`backhaul-agent node create|move|mirror|delete|undelete`: Create, move, mirror, delete and undelete nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from backhaul_agent.cli.asking import ask, print_points
from backhaul_agent.cli.options import as_json_option, server_options
from backhaul_agent.cli.values.set import points_of
from backhaul_agent.client.config import ConfigClient


@click.group(name="node")
def command() -> None:
    """Change the tree of this vehicle's nodes.

    A node may have several parents, but none that is below itself. What is refused says why, and
    changes nothing.
    """


def _shared(function: Callable[..., None]) -> Callable[..., None]:
    return server_options(as_json_option(function))


@command.command()
@click.argument("node")
@click.argument("points", metavar="[TYPE[.KEY][:DTYPE]=VALUE]...", nargs=-1)
@click.option("--type", "type_", default="", help="What it is: a battery, a gateway.")
@click.option("--under", default="", help="Its parent; by default the device.")
@_shared
def create(node: str, points: tuple[str, ...], type_: str, under: str, **options: Any) -> None:
    """Make a node, with its first points, all at once."""
    first = points_of(tuple(f"node.{point}" for point in points))[1] if points else []
    _do("create", {"node": node, "parent": under, "type": type_, "points": first}, **options)


@command.command()
@click.argument("node")
@click.option("--to", required=True, help="The parent it goes to.")
@click.option("--from", "from_", default="", help="The one it leaves, if it has several.")
@_shared
def move(node: str, to: str, from_: str, **options: Any) -> None:
    """Hang a node under another parent."""
    _do("move", {"node": node, "to": to, "from": from_}, **options)


@command.command()
@click.argument("node")
@click.option("--under", required=True, help="One more parent.")
@_shared
def mirror(node: str, under: str, **options: Any) -> None:
    """Hang a node under one more parent."""
    _do("mirror", {"node": node, "parent": under}, **options)


@command.command()
@click.argument("node")
@click.option("--under", default="", help="Under this parent only.")
@_shared
def delete(node: str, under: str, **options: Any) -> None:
    """Delete a node: it hangs nowhere then, and its points are kept."""
    _do("delete", {"node": node, "parent": under}, **options)


@command.command()
@click.argument("node")
@click.option("--under", default="", help="Put it back under this parent.")
@_shared
def undelete(node: str, under: str, **options: Any) -> None:
    """Put a deleted node back where it was."""
    _do("undelete", {"node": node, "parent": under}, **options)


def _do(what: str, fields: dict[str, Any], *, as_json: bool, login: dict[str, Any]) -> None:
    points = ask(login, lambda agent: ConfigClient(agent).change_tree(what, **fields))
    print_points(points, as_json=as_json)
