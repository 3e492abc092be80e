"""`backhaul-hub migrate`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from backhaul_hub.clock import SystemClock
from backhaul_hub.config import load
from backhaul_hub.connection import connect
from backhaul_hub.migrate import HANDOVER, Migration

from ._ask import hub_client
from ._options import directory_option
from ._progress import progress

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option(
    "--to",
    required=True,
    metavar="URL",
    help="The new hub's server, as nats://hub2:4222. It has this hub's keys: init --keys-of.",
)
@click.option("--abort", is_flag=True, help="Delete what was made there; the hub stays here.")
@directory_option
def migrate(to: str, abort: bool, directory: Path) -> None:
    """Move this hub's streams to another server, made by `backhaul-hub init` there, and check them.

    Both servers must run, no control plane may. Cut short, it goes on when run again. Vehicles keep
    what they have to send until the new hub is up.
    """
    url = urlsplit(to)
    if url.scheme not in ("nats", "tls") or not url.hostname or url.username:
        raise click.BadParameter("a URL such as nats://hub2:4222", param_hint="--to")

    async def work() -> list[str]:
        config = load(directory)
        async with hub_client(directory) as here:
            there = await connect(to, config.nats.control)
            try:
                with progress() as told:
                    migration = Migration(here, there, config, SystemClock(), directory, to, told)
                    if abort:
                        return [f"deleted {name} there" for name in await migration.abort()]
                    return [
                        f"{name}: {state['messages']:,} messages up to sequence {state['last_seq']:,}"
                        for name, state in (await migration.run()).items()
                    ]
            finally:
                await there.close()

    click.echo("\n".join(asyncio.run(work())))
    if abort:
        click.echo(f"The hub is here again. Start: backhaul-hub up --dir {directory}")
        return
    click.echo(f"""\
All of it is at {to}, and was compared. Now
  1. bring what is in {directory / HANDOVER} into the new hub's directory, over what is there
  2. there: take the sizes over from the old hub.toml, since streams keep their limits; then
     nats-server --signal reload, and backhaul-hub up
  3. have vehicles reach it: move the name in their leaf.conf to the new machine, or change `url` of the
     remote in each leaf.conf and restart its nats-server; leaf_url in hub.toml for those added later
  4. point Spark's jobs at the new hub directory
The old hub refuses to start. Once the new one has all, delete it; to go back: migrate --abort.""")
