"""`backhaul-hub watch VID [PATH]...`: Show the heads of a device, then every change as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import click

from backhaul_codec.state.point_text import line, path
from backhaul_hub.broadcast.points import changed_subject
from backhaul_hub.cli._ask import Access, Visitor
from backhaul_hub.cli._options import access_option


@click.command()
@click.argument("device", metavar="VID")
@click.argument("paths", metavar="[NODE[.TYPE[.KEY]]]...", nargs=-1)
@access_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def watch(device: str, paths: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Show the heads of device VID, then every change as it comes, until interrupted.

    With --creds the newest readings too, as far as the hub tells them along the tree.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(access, device, paths, as_json=as_json))


async def _watch(access: Access, device: str, paths: tuple[str, ...], *, as_json: bool) -> None:
    changed = access.person.live if isinstance(access, Visitor) else changed_subject(device)
    async with access.client() as client:
        # First listen, then ask: what changes in between is shown twice rather than not at all.
        changes = await client.subscribe(changed)
        question = {"device": device, "paths": list(paths), "deleted": True}
        for point in (await access.ask(client, "get", question, reads=True))["points"]:
            _show(point, as_json=as_json)
        async for message in changes.messages:
            point = json.loads(message.data)
            # Along the tree come other devices' points as well, and what is none.
            if point.get("device") != device or "node" not in point:
                continue
            if not paths or any(_under(each, path(point)) for each in paths):
                _show(point, as_json=as_json)


def _under(pattern: str, series: str) -> bool:
    return f"{series.partition('>')[2] or series}.".startswith(f"{pattern}.")


def _show(point: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(point, ensure_ascii=False))
        return
    click.echo(line(point))
