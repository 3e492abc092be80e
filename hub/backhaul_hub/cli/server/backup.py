"""`backhaul-hub backup`: Take a backup of the hub while it runs, and check it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backhaul_hub.backup.backup import Backup
from backhaul_hub.backup.retention import begin_next, drop_erased, drop_oldest
from backhaul_hub.backup.selection import Choice
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import awaited, directory_option, json_option
from backhaul_hub.cli._printing import progress
from backhaul_hub.config import load
from backhaul_runtime.clock import SystemClock


@click.command()
@click.argument("target", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME",
    help="Only this one; several times. Artifacts are left out then.",
)
@click.option(
    "--without-up",
    is_flag=True,
    help="Leave UP's messages out: after a restore vehicles are asked for them again, and what they"
    " have forgotten is only in the history.",
)
@click.option(
    "--keep",
    type=click.IntRange(1, 1000),
    help="Take it into a new directory below DIR, and keep this many there.",
)
@json_option
@directory_option
@awaited
async def backup(
    target: Path,
    streams: tuple[str, ...],
    without_up: bool,
    keep: int | None,
    as_json: bool,
    directory: Path,
) -> None:
    """Take a backup of the hub into DIR, while it runs, and check it.

    Streams, hub.db, configuration, keys and logins, artifacts as files. Run again after it was
    cut short, it goes on. A directory without manifest.json is no whole backup.
    """
    if keep:
        target = begin_next(target, SystemClock().now_ns())
    async with hub_client(directory) as client:
        with progress() as told:
            choice, config = Choice(streams, without_up), load(directory)
            work = Backup(client, config, SystemClock(), directory, target, choice, told)
            manifest = await work.run()
    dropped = [*drop_erased(target), *drop_oldest(target.parent, keep)] if keep else []
    if as_json:
        rows = {each.name: each.state for each in manifest.streams}
        said = {"directory": str(target), "streams": rows, "artifacts": len(manifest.artifacts)}
        click.echo(json.dumps(said | {"dropped": [str(each) for each in dropped]}, indent=2))
        return
    for each in manifest.streams:
        count, last = each.state["messages"], each.state["last_seq"]
        checked = "" if each.blocks or not count else ", contents without digests"
        click.echo(f"{each.name}: {count:,} messages up to sequence {last:,}{checked}")
    size = sum(entry.bytes for entry in manifest.files.values())
    click.echo(f"{target}: {len(manifest.files)} files, {size:,} bytes, all checked")
    click.echo("It holds keys and tokens: its files are readable by their owner alone.")
    for gone in dropped:
        click.echo(f"removed {gone}")
