"""`backhaul-hub grow NEW`: Make three servers of one; vehicles, people and jobs keep their logins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from backhaul_hub.access.keys import read_keys
from backhaul_hub.cli._migration import migration_to, moved
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.migrate.grown_hub import make_grown, take_hand_over, without
from backhaul_hub.servers import read_places, server_directories
from backhaul_hub.tls.files import CA, TLS
from backhaul_runtime.clock import SystemClock

_PORT = click.IntRange(1, 65535)


@click.command()
@click.argument("new", type=click.Path(file_okay=False, path_type=Path))
@directory_option
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME=HOST[:PORT...]",
    help="A server of the new hub, 3 or 5 times, as in init. One may have the old server's address.",
)
@click.option("--host", help="Address of the leaf ports.  [default: each server's]")
@click.option("--leaf-url", help="Where vehicles reach them, separated by commas, as in init.")
@click.option("--port", type=_PORT, default=4222, show_default=True, help="Port for clients.")
@click.option(
    "--leaf-port", type=_PORT, default=7422, show_default=True, help="Port for vehicles' leafs."
)
@click.option(
    "--cluster-port",
    type=_PORT,
    default=6222,
    show_default=True,
    help="Port for the other servers.",
)
@click.option(
    "--websocket-port",
    type=_PORT,
    default=8471,
    show_default=True,
    help="Port of the servers for the page's browsers, where the hub has a page.",
)
@click.option("--prepare", is_flag=True, help="End in sync, before the switch; run again for it.")
@click.option("--abort", is_flag=True, help="Delete the streams there; the hub stays as it was.")
def grow(
    new: Path,
    directory: Path,
    servers: tuple[str, ...],
    host: str | None,
    leaf_url: str | None,
    port: int,
    leaf_port: int,
    cluster_port: int,
    websocket_port: int,
    prepare: bool,
    abort: bool,
) -> None:
    """Make a hub of several servers, in the directory NEW, of one with a single server.

    The first run writes NEW, with the same keys and settings. The next moves the streams, once the new
    servers run, while the hub works on until the switch. Cut short, it goes on when run again.
    """
    if not (new / "hub.toml").exists():
        if not servers:
            raise click.UsageError(f"{new} holds no hub yet: say its servers, --server NAME=HOST")
        places = read_places(servers, port, leaf_port, cluster_port)
        late = make_grown(
            *(directory, new, places),
            host=host or "",
            leaf_url=leaf_url or "",
            websocket_port=websocket_port,
            clock=SystemClock(),
        )
        confs = {path.name: f"{path}/hub.conf" for path in server_directories(new)}
        now = [name for name in confs if name not in {place.name for place in late}]
        click.echo(f"A hub of {len(places)} servers stands in {new}. Next, on each machine:")
        click.echo("".join(f"  nats-server -c {confs[name]}\n" for name in now), nl=False)
        click.echo(f"then: backhaul-hub grow {new} --dir {directory}")
        for place in late:
            click.echo(
                f"{place.name} has the old server's address: leave it off until that has ended."
            )
        return
    if servers:
        raise ConfigError(
            f"{new} holds a hub already",
            hint=f"to go on: backhaul-hub grow {new} --dir {directory}",
        )
    if prepare and abort:
        raise click.UsageError("one of --prepare, --abort")
    click.echo("\n".join(asyncio.run(_move(directory, new, prepare=prepare, abort=abort))))
    if abort:
        click.echo(f"The hub is here again. Start: backhaul-hub up --dir {directory}")
        return
    if prepare:
        click.echo("In sync, and compared. The hub works on; run it without --prepare to switch.")
        return
    take_hand_over(directory, new)
    click.echo(f"""\
All of it is at the new servers, and was compared. Now
  1. end the old server, and start the new one that waited for its address, if one did
  2. backhaul-hub up --dir {new}
     which has each stream copied to every server; `status` names those that are behind until they are not
  3. point Spark's jobs at {new}
Vehicles keep their logins. They come as soon as the address in their leaf.conf is one of the new servers'.
The old hub refuses to start. To go back before step 2: backhaul-hub grow {new} --abort --dir {directory}""")


async def _move(directory: Path, new: Path, *, prepare: bool, abort: bool) -> list[str]:
    """Move the streams, or take that back; return a line for each."""
    config, grown = load(directory), load(new)
    if read_keys(directory).up_api != read_keys(new).up_api:
        raise ConfigError(f"{new} is another hub: it has other keys")
    to = without(grown.nats.url, config)
    leafs = (config.fleet.leaf_url, without(grown.fleet.leaf_url, config))
    async with migration_to(directory, to, leafs, directory / TLS / CA) as migration:
        if abort:
            return [f"deleted {name} there" for name in await migration.abort()]
        return moved(await migration.run(prepare=prepare))
