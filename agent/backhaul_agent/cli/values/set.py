"""`backhaul-agent set`: Write configuration: it reaches the hub, and wins there by its time."""

from __future__ import annotations

from typing import Any

import click

from backhaul_agent.cli.asking import ask, print_points
from backhaul_agent.cli.options import as_json_option, server_options
from backhaul_agent.client.config import ConfigClient
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec import CodecError
from backhaul_codec.programs.command_line import deletions_option
from backhaul_codec.state.json_values import parse_assignment, parse_path, value_to_json


@click.command(name="set")
@click.argument("assignments", metavar="[NODE.TYPE[.KEY][:DTYPE]=VALUE]...", nargs=-1)
@deletions_option
@click.option("--parent", default="", help="Write points of the edge that leads down from here.")
@as_json_option
@server_options
def command(
    assignments: tuple[str, ...],
    deletions: tuple[str, ...],
    parent: str,
    as_json: bool,
    login: dict[str, Any],
) -> None:
    """Write points of one node; all of them together, or none.

    It is done when this returns, and durable; the hub learns of it now or when the link is back.

    A VALUE that is a number is a float64, one in double quotes or anything else is text, an object
    or array is JSON; say otherwise with a DTYPE: battery.cells:int64=96, mode.name:text=1.
    """
    node, points = points_of(assignments, deletions)
    written = ask(login, lambda agent: ConfigClient(agent).write(node, points, parent=parent))
    print_points(written, as_json=as_json)


def points_of(
    assignments: tuple[str, ...], deletions: tuple[str, ...] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """Return the node and the points to write, as ``agent.set`` takes them.

    Raises:
        RefusedError: an assignment is none, or they are of several nodes.
    """
    points: list[dict[str, Any]] = []
    nodes: set[str] = set()
    try:
        for said in map(parse_assignment, assignments):
            value, dtype = value_to_json(said.value)
            points.append({"type": said.type, "key": said.key, "value": value, "dtype": dtype})
            nodes.add(said.node)
        for node, type_, key in map(parse_path, deletions):
            points.append({"type": type_, "key": key, "delete": True})
            nodes.add(node)
    except CodecError as error:
        raise RefusedError(Code.BAD_FIELD, error.reason) from error
    if not nodes:
        raise click.UsageError("nothing to write: NODE.TYPE=VALUE, or --delete NODE.TYPE")
    if len(nodes) > 1:
        raise RefusedError(Code.BAD_FIELD, "one write is of one node: write the others after it")
    return nodes.pop(), points
