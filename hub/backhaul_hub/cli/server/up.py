"""`backhaul-hub up`: Bring streams and sources in line, then run the control plane."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import click
import structlog

from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._logs import log_to_stderr
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.errors import HubError, LimitsLoweredError, StreamConflictError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.page.beside import page_beside
from backhaul_hub.simulated.target import require_real
from backhaul_hub.start_guard import require_here
from backhaul_hub.streams.streams import declared_streams, planned
from backhaul_hub.unfinished import require_finished
from backhaul_runtime.clock import SystemClock


@click.command()
@directory_option
@click.option(
    "--lower-limits",
    is_flag=True,
    help="Give streams the lower limits of hub.toml, and drop what they hold beyond them.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only print what would be done to streams; exit status 1 where there is something.",
)
@click.option(
    "--no-page", is_flag=True, help="Do not serve the page of hub.toml: another program does."
)
def up(directory: Path, lower_limits: bool, check: bool, no_page: bool) -> None:
    """Bring streams, consumers and sources in line, then run the control plane.

    Beside it, in a process of its own, runs `backhaul-hub page` where [page] in hub.toml says a place.
    Logs JSON lines to stderr. Stops cleanly on SIGTERM and SIGINT.
    """
    if check:
        to_do = asyncio.run(_check(directory, lower_limits))
        click.echo("\n".join(to_do) or "all streams are as declared")
        sys.exit(1 if to_do else 0)
    log_to_stderr()
    asyncio.run(_run(directory, lower_limits, no_page=no_page))


async def _check(directory: Path, lower_limits: bool) -> list[str]:
    config = load(directory)
    to_do = []
    async with hub_client(directory) as client:
        api = JetStreamApi(client)
        for declared in declared_streams(config):
            info = await api.stream_info(declared["name"])
            existing = info["config"] if info else None
            try:
                to_do += planned(declared, existing, lower_limits=lower_limits)
            except (StreamConflictError, LimitsLoweredError) as error:
                to_do.append(f"refuse: {error}")
    return to_do


async def _run(directory: Path, lower_limits: bool, *, no_page: bool) -> None:
    require_real(directory)
    require_finished(directory)
    require_here(directory)
    config = load(directory)
    plane = ControlPlane(directory, config, SystemClock(), lower_limits=lower_limits)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, plane.stop)
    with_page = config.page.listen and not no_page
    try:
        async with page_beside(directory) if with_page else contextlib.nullcontext():
            await plane.run()
    except* HubError as group:
        raise group.exceptions[0] from None
    structlog.get_logger().info("stopped")
