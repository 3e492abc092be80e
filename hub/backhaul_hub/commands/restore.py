"""`backhaul-hub restore`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backhaul_hub.account_keeper import AccountKeeper
from backhaul_hub.backup_files import put_missing_files
from backhaul_hub.carried_over import revoked_at_servers, revoked_in_files
from backhaul_hub.clock import SystemClock
from backhaul_hub.config import load
from backhaul_hub.connection import connect
from backhaul_hub.errors import BackupError
from backhaul_hub.keys import read_keys
from backhaul_hub.manifest import REGISTRY
from backhaul_hub.registry import Registry
from backhaul_hub.restore import Restore, whole_backup
from backhaul_hub.servers import urls
from backhaul_hub.setup import write_accounts
from backhaul_hub.unfinished import mark_unfinished

from ._ask import hub_client
from ._options import directory_option
from ._progress import progress
from ._tell import tell_hub

if TYPE_CHECKING:
    from backhaul_hub.carried_over import CarriedOver, Revoked
    from backhaul_hub.config import HubConfig


@click.command()
@click.argument("source", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--replace",
    is_flag=True,
    help="Delete the hub's streams that the backup holds, and move its hub.db aside.",
)
@directory_option
def restore(source: Path, replace: bool, directory: Path) -> None:
    """Put a hub back from the backup in DIR, and check it.

    The hub's nats-server must run, its control plane must not. Configuration that is missing is put
    back, what is there stays. Vehicles then send again what they still hold of what came later.
    """
    manifest = whole_backup(source)
    if not (directory / "hub.toml").exists():
        for path in put_missing_files(source, manifest, directory):
            click.echo(f"put back {path}")
        asyncio.run(_write_accounts(source, directory))
        mark_unfinished(directory, source, cleared=False)
        raise BackupError(
            f"the configuration of this hub is back in {directory}, nothing else yet",
            hint="see that store_dir in hub.conf is right, start nats-server -c hub.conf, and run"
            " this again",
        )

    async def put() -> tuple[CarriedOver, str | None]:
        config = load(directory)
        revoked = await _revoked(directory, config)
        async with hub_client(directory) as client:
            with progress() as told:
                work = Restore(client, config, SystemClock(), source, manifest, directory, told)
                carried = await work.run(replace=replace, revoked=revoked)
            return carried, await tell_hub(directory, config)

    carried, not_told = asyncio.run(put())
    put_missing_files(source, manifest, directory)
    for each in manifest.streams:
        count, last = each.state["messages"], each.state["last_seq"]
        click.echo(f"{each.name}: {count:,} messages up to sequence {last:,}")
    for emptied in manifest.emptied:
        click.echo(f"{emptied.name}: empty, it was left out of the backup")
    click.echo(
        f"{len(manifest.artifacts)} artifacts; hub.db as of {manifest.began}. All of it was checked."
    )
    _print_carried(carried)
    if not_told:
        click.echo(f"Not every server was told, the control plane will: {not_told}", err=True)
    click.echo(f"Now start: backhaul-hub up --dir {directory}")


async def _revoked(directory: Path, config: HubConfig) -> Revoked:
    system = await connect(config.nats.url, config.nats.system)
    try:
        return await revoked_at_servers(system, read_keys(directory), len(urls(config.nats.url)))
    finally:
        await system.close()


def _print_carried(carried: CarriedOver) -> None:
    if carried.keys:
        click.echo(f"{carried.keys} keys were revoked since the backup, and stay so.")
    if carried.devices:
        click.echo(
            f"Shut out by that: {', '.join(carried.devices)}. Those that are yours still were enrolled"
            " anew or had another key: backhaul-hub enrol VID"
        )
    if carried.people:
        click.echo(f"Withdrawn credentials stay so: {', '.join(carried.people)}")
    if carried.tokens:
        click.echo(
            f"Void, since nobody knows whether they were used: the tokens of"
            f" {', '.join(carried.tokens)}. Make others: backhaul-hub enrol VID"
        )


async def _write_accounts(source: Path, directory: Path) -> None:
    """Have servers know at their start who may log in, and who no more."""
    keys = read_keys(directory)
    async with await Registry.open_existing(source / REGISTRY) as registry:
        keeper = AccountKeeper(keys, registry, SystemClock())
        jwts = await keeper.build(also_revoked=revoked_in_files(directory, keys))
    write_accounts(directory, keys, jwts)
