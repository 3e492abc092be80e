"""`backhaul-hub page`: Serve the fleet's page to browsers, where hub.toml says."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from backhaul_hub.cli._options import awaited, directory_option
from backhaul_hub.cli._printing import log_to_stderr
from backhaul_hub.config import load


@click.command()
@directory_option
@awaited
async def page(directory: Path) -> None:
    """Serve the fleet's page to browsers, where [page] listen in hub.toml says.

    It serves files and passes on logins; it has no other rights. `backhaul-hub up` runs it by itself,
    but for `up --no-page`. Logs JSON lines to stderr. Stops cleanly on SIGTERM and SIGINT.
    """
    config = load(directory)
    if not config.page.listen:
        # No failure: a service manager would try again.
        click.echo("hub.toml names no place for the page: [page] listen", err=True)
        return
    log_to_stderr()
    # Not above: `-h` of a command must work without it.
    from backhaul_hub.page.server import serve

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(directory, config, stop)
