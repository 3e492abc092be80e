"""`backhaul-hub restore`: Put a hub back from a backup, and check it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from backhaul_hub.access.account_files import jwts_in_files, write_accounts
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.backup.carry_revocations import AtServers, CarriedOver, at_servers
from backhaul_hub.backup.files import copy_database, put_missing_files
from backhaul_hub.backup.manifest import REGISTRY, Manifest
from backhaul_hub.backup.restore import Restore, require_stopped, whole_backup
from backhaul_hub.cli._act import told
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._from_streams import print_rebuilt, rebuild_registry, rebuilt_as_json
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._printing import progress
from backhaul_hub.config import HubConfig, load
from backhaul_hub.db.lock import ENDS_S_MAX, alone_with
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError
from backhaul_hub.nats.connection import connected
from backhaul_hub.servers import urls
from backhaul_hub.unfinished import mark_unfinished
from backhaul_runtime.clock import SystemClock


@click.command()
@click.argument(
    "source", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
@click.option(
    "--replace",
    is_flag=True,
    help="Delete the hub's streams that the backup holds, and move its hub.db aside.",
)
@click.option(
    "--from-streams",
    is_flag=True,
    help="No backup: rebuild hub.db, or complete it, from what servers and files still know.",
)
@directory_option
@click.option("--json", "as_json", is_flag=True, help="What was put back, for programs.")
def restore(
    source: Path | None, replace: bool, from_streams: bool, directory: Path, as_json: bool
) -> None:
    """Put a hub back from the backup in DIR, and check it.

    The hub's nats-server must run, its control plane must not. Configuration that is missing is put
    back, what is there stays. Vehicles then send again what they still hold of what came later.
    """
    if from_streams:
        if source is not None or replace:
            raise click.UsageError("--from-streams needs no backup, and replaces nothing")
        rebuilt, not_told = asyncio.run(rebuild_registry(directory))
        if as_json:
            click.echo(rebuilt_as_json(rebuilt, not_told))
        else:
            print_rebuilt(directory, rebuilt, not_told)
        return
    if source is None:
        raise click.UsageError("say the backup's directory, or --from-streams")
    manifest = whole_backup(source)
    if not (directory / "hub.toml").exists():
        for path in put_missing_files(source, manifest, directory):
            click.echo(f"put back {path}", err=as_json)
        asyncio.run(_write_accounts(source, directory))
        mark_unfinished(directory, source, cleared=False)
        raise BackupError(
            f"the configuration of this hub is back in {directory}, nothing else yet",
            hint="see that store_dir in hub.conf is right, start nats-server -c hub.conf, and run"
            " this again",
        )

    async def put() -> tuple[CarriedOver, str]:
        config = load(directory)
        there = await _there(directory, config)
        async with hub_client(directory) as client:
            await require_stopped(client)
            async with alone_with(directory, "backhaul-hub restore", wait_s=ENDS_S_MAX):
                with progress() as shown:
                    work = Restore(
                        client, config, SystemClock(), source, manifest, directory, shown
                    )
                    carried = await work.run(replace=replace, there=there)
                async with await Registry.open(directory / REGISTRY) as registry:
                    return carried, await told(directory, config, read_keys(directory), registry)

    carried, not_told = asyncio.run(put())
    put_missing_files(source, manifest, directory)
    if as_json:
        click.echo(json.dumps(_as_json(manifest, carried, not_told)))
        return
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


def _as_json(manifest: Manifest, carried: CarriedOver, not_told: str) -> dict[str, Any]:
    return {
        "streams": {
            each.name: {"messages": each.state["messages"], "last_seq": each.state["last_seq"]}
            for each in manifest.streams
        },
        "empty": [each.name for each in manifest.emptied],
        "artifacts": len(manifest.artifacts),
        "hub_db_as_of": manifest.began,
        "carried_over": carried._asdict(),
        "told": not not_told,
    }


async def _there(directory: Path, config: HubConfig) -> AtServers:
    async with connected(config.nats.url, config.nats.system) as system:
        return await at_servers(system, read_keys(directory), len(urls(config.nats.url)))


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
    """Have servers know at their start which keys may log in, and which no more."""
    keys = read_keys(directory)
    log = RevocationLog(directory, keys.operator_signing)
    # A copy: one of an older version is brought up to date, and the backup stays as it is.
    copy = directory / f"{REGISTRY}.of-the-backup"
    try:
        await asyncio.to_thread(copy_database, source / REGISTRY, copy)
        async with await Registry.open(copy) as registry:
            keeper = AccountKeeper(keys, registry, SystemClock(), log=log)
            there = await asyncio.to_thread(jwts_in_files, directory, keys)
            write_accounts(directory, keys, (await keeper.settle(there)).jwts)
    finally:
        for suffix in ("", "-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
