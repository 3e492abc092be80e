"""`backhaul-hub node create|move|mirror|delete|undelete`: Change the tree: groups above devices, and the nodes inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from backhaul_hub.cli._ask import Operator, ask
from backhaul_hub.cli._options import directory_option, json_option, who_option
from backhaul_hub.cli._printing import print_points
from backhaul_hub.cli.values.set import by_node


@click.group()
def node() -> None:
    """Change the tree: groups above devices, and the nodes inside of them.

    An ADDRESS is a group (depot-1), a device (VID-001), a node of a device (VID-001/battery), or
    `fleet`, the root. Edges inside of a device are written to it; those above stay at the hub.
    """


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    return directory_option(who_option(json_option(command)))


@node.command()
@click.argument("address")
@click.argument("points", metavar="[TYPE[.KEY][:DTYPE]=VALUE]...", nargs=-1)
@click.option("--type", "node_type", help="What it is: a battery, a depot.")
@click.option("--under", metavar="ADDRESS", help="Its parent; by default its device, or the root.")
@_shared
def create(
    address: str,
    points: tuple[str, ...],
    node_type: str | None,
    under: str | None,
    **options: Any,
) -> None:
    """Make a node or a group, with its first points, all at once."""
    first = by_node(tuple(f"node.{point}" for point in points)).get("node", [])
    _do("create", address, {"under": under, "type": node_type, "points": first}, options)


@node.command()
@click.argument("address")
@click.option("--to", required=True, metavar="ADDRESS", help="The parent it goes to.")
@click.option("--from", "source", metavar="ADDRESS", help="The one it leaves, if it has several.")
@_shared
def move(address: str, to: str, source: str | None, **options: Any) -> None:
    """Hang a node under another parent."""
    _do("move", address, {"under": to, "source": source}, options)


@node.command()
@click.argument("address")
@click.option("--under", required=True, metavar="ADDRESS", help="One more parent.")
@_shared
def mirror(address: str, under: str, **options: Any) -> None:
    """Hang a node under one more parent."""
    _do("mirror", address, {"under": under}, options)


@node.command()
@click.argument("address")
@click.option("--under", metavar="ADDRESS", help="Under this parent only.")
@_shared
def delete(address: str, under: str | None, **options: Any) -> None:
    """Delete a node: it hangs nowhere then, and its points are kept.

    A device is only taken out of its groups.
    """
    _do("delete", address, {"under": under}, options)


@node.command()
@click.argument("address")
@click.option("--under", metavar="ADDRESS", help="Put it back under this parent.")
@_shared
def undelete(address: str, under: str | None, **options: Any) -> None:
    """Put a deleted node back where it was."""
    _do("undelete", address, {"under": under}, options)


def _do(do: str, address: str, question: dict[str, Any], options: dict[str, Any]) -> None:
    question |= {"do": do, "address": address, "who": options["who"]}
    print_points(ask(Operator(options["directory"]), "node", question), as_json=options["as_json"])
