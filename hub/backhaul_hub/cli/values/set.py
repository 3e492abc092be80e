"""`backhaul-hub set VID NODE.TYPE[.KEY]=VALUE ...`: Write points of a device; they reach it now, or when it is back."""

from __future__ import annotations

from typing import Any

import click

from backhaul_codec import CodecError
from backhaul_codec.programs.command_line import deletions_option
from backhaul_codec.state.json_values import parse_assignment, parse_path, value_to_json
from backhaul_hub.cli._ask import Access
from backhaul_hub.cli._options import access_option, awaited, json_option, who_option
from backhaul_hub.cli._printing import print_points
from backhaul_hub.errors import WriteRefusedError


@click.command("set")
@click.argument("device", metavar="VID")
@click.argument("assignments", metavar="[NODE.TYPE[.KEY][:DTYPE]=VALUE]...", nargs=-1)
@access_option
@deletions_option
@who_option
@json_option
@awaited
async def set_(
    device: str,
    assignments: tuple[str, ...],
    access: Access,
    deletions: tuple[str, ...],
    who: str,
    as_json: bool,
) -> None:
    """Write points of device VID; they reach it now, or when it is back.

    All points of one node are one write, applied whole or not at all; different nodes are written
    one after the other.

    A VALUE that is a number is a float64, one in double quotes or anything else is text, an object
    or array is JSON; say otherwise with a DTYPE: battery.cells:int64=96, mode.name:text=1.
    """
    writes = by_node(assignments, deletions)
    if not writes:
        raise click.UsageError("nothing to write: NODE.TYPE=VALUE, or --delete NODE.TYPE")
    written: list[dict[str, Any]] = []
    async with access.client() as client:
        for node, points in writes.items():
            question = {"device": device, "node": node, "points": points, "who": who}
            written += (await access.ask(client, "set", question))["points"]
    print_points({"device": device, "points": written}, as_json=as_json)


def by_node(
    assignments: tuple[str, ...], deletions: tuple[str, ...] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Return the points to write, node by node, as the hub's services take them.

    Raises:
        WriteRefusedError: an assignment is none.
    """
    writes: dict[str, list[dict[str, Any]]] = {}
    try:
        for text in assignments:
            said = parse_assignment(text)
            value, dtype = value_to_json(said.value)
            point = {"type": said.type, "key": said.key, "value": value, "dtype": dtype}
            writes.setdefault(said.node, []).append(point)
        for text in deletions:
            node, type_, key = parse_path(text)
            writes.setdefault(node, []).append({"type": type_, "key": key, "delete": True})
    except CodecError as error:
        raise WriteRefusedError(error.reason) from error
    return writes
