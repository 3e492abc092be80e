"""`backhaul-hub migrate`: Move this hub's streams to another server, and check them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import click

from backhaul_hub.cli._migration import migration_to, moved
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.migrate.migrate import HANDOVER
from backhaul_hub.tls.files import CA, TLS

_LEAF_PORT = 7422


@click.command()
@click.option(
    "--to",
    required=True,
    metavar="URL",
    help="The new hub's server, as nats://hub2:4222. It has this hub's keys: init --keys-of.",
)
@click.option("--to-leaf", metavar="URL", help="Its leaf port; port 7422 there if nothing is said.")
@click.option(
    "--to-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Authorities of both hubs' certificates, in one file, if not tls/ca.pem.",
)
@click.option("--from-leaf", metavar="URL", help="This hub's, if not leaf_url of hub.toml.")
@click.option("--prepare", is_flag=True, help="End in sync, before the switch; run again for it.")
@click.option("--abort", is_flag=True, help="Delete what was made there; the hub stays here.")
@click.option("--remove", is_flag=True, help="Delete the streams here, once the hub runs there.")
@directory_option
def migrate(
    to: str,
    to_leaf: str | None,
    to_ca: Path | None,
    from_leaf: str | None,
    prepare: bool,
    abort: bool,
    remove: bool,
    directory: Path,
) -> None:
    """Move this hub's streams to another server, made by `backhaul-hub init` there, and check them.

    They are mirrored there while the hub works on. Once they are in sync the control plane here is
    stopped, the last messages go over, and all is compared. No control plane may run there meanwhile.
    Cut short, it goes on when run again.
    """
    url = urlsplit(to)
    if url.scheme not in ("nats", "tls") or not url.hostname or url.username:
        raise click.BadParameter("a URL such as nats://hub2:4222", param_hint="--to")
    if prepare + abort + remove > 1:
        raise click.UsageError("one of --prepare, --abort, --remove")

    async def work() -> list[str]:
        leafs = (
            from_leaf or load(directory).fleet.leaf_url,
            to_leaf or f"nats-leaf://{url.hostname}:{_LEAF_PORT}",
        )
        async with migration_to(directory, to, leafs, to_ca or directory / TLS / CA) as migration:
            if abort:
                return [f"deleted {name} there" for name in await migration.abort()]
            if remove:
                return [f"deleted {name} here" for name in await migration.remove()]
            return moved(await migration.run(prepare=prepare))

    click.echo("\n".join(asyncio.run(work())))
    if remove:
        return
    if prepare:
        click.echo(
            "In sync, and compared. The hub works on here; run it without --prepare to switch."
        )
        return
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
The old hub refuses to start. Once the new one runs: migrate --remove; to go back: migrate --abort.""")
