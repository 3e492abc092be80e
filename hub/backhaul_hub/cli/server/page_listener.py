"""`backhaul-hub page-listener`: Write the servers' listener for browsers, as hub.toml says."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import add_later_logins
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.page_settings import connects, origins
from backhaul_hub.private_files import alone_in
from backhaul_hub.setup.websocket_config import write_listener
from backhaul_hub.tls.files import has_tls
from backhaul_hub.tls.setup import is_loopback
from backhaul_runtime.clock import SystemClock


@click.command("page-listener")
@directory_option
@click.option("--host", help="Where the servers listen.  [default: the host of [page] websocket]")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Likewise.  [default: the port of [page] websocket]",
)
@click.option(
    "--no-tls", is_flag=True, help="Speak none: on loopback only, where a proxy stands in front."
)
def page_listener(directory: Path, host: str | None, port: int | None, no_tls: bool) -> None:
    """Write the servers' listener for browsers, as [page] in hub.toml says: each time that changes.

    The listener lets in browsers that come from the page alone, so it has to know where that is. Then
    the servers have to be started again: none takes another listener on while it runs.
    """
    page = load(directory).page
    if not page.listen:
        raise ConfigError(
            "hub.toml names no place for the page",
            hint='[page] listen = "127.0.0.1:8470", websocket = "ws://127.0.0.1:8471"',
        )
    first = urlsplit(connects(page)[0])
    host = host or first.hostname or "127.0.0.1"
    port = port or first.port or (443 if first.scheme == "wss" else 80)
    tls = has_tls(directory) and not no_tls and first.scheme == "wss"
    own = has_tls(directory) and not is_loopback(page.listen.rpartition(":")[0])
    with alone_in(directory):
        add_later_logins(
            directory, read_keys(directory), now_s=SystemClock().now_ns() // 1_000_000_000
        )
        written = write_listener(directory, host, port, origins(page, tls=own), tls=tls)
    for each in written:
        click.echo(each)
    click.echo("Start the servers again: systemctl restart backhaul-hub-server", err=True)
