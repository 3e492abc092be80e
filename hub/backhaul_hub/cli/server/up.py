"""`backhaul-hub up`: Bring streams and sources in line, then run the control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import structlog

from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli._printing import log_to_stderr
from backhaul_hub.config import HubConfig, load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.errors import HubError, LimitsLoweredError, StreamConflictError
from backhaul_hub.nats.connection import connected
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.page.beside import page_beside
from backhaul_hub.simulated.target import require_real
from backhaul_hub.standby.leadership import Leadership
from backhaul_hub.standby.machine import StandbyMachine, begin_journal
from backhaul_hub.start_guard import require_here
from backhaul_hub.streams.streams import declared_streams, planned
from backhaul_hub.unfinished import require_finished
from backhaul_runtime.clock import SystemClock
from backhaul_runtime.systemd_notify import Notifier


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
    "--begin-journal",
    "begin",
    is_flag=True,
    help="Of several machines: this one's hub.db is the first of a new journal. No control plane may run.",
)
@click.option(
    "--no-page", is_flag=True, help="Do not serve the page of hub.toml: another program does."
)
def up(directory: Path, lower_limits: bool, check: bool, begin: bool, no_page: bool) -> None:
    """Bring streams, consumers and sources in line, then run the control plane.

    If [standby] in hub.toml names this machine, it follows the one that leads, and takes over when that is gone.

    Beside it, in a process of its own, runs `backhaul-hub page` where [page] in hub.toml says a place.
    Logs JSON lines to stderr. Stops cleanly on SIGTERM and SIGINT.
    """
    if check:
        to_do = asyncio.run(_check(directory, lower_limits))
        click.echo("\n".join(to_do) or "all streams are as declared")
        sys.exit(1 if to_do else 0)
    log_to_stderr()
    asyncio.run(_run(directory, lower_limits, begin=begin, no_page=no_page))


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


async def _run(directory: Path, lower_limits: bool, *, begin: bool, no_page: bool) -> None:
    require_real(directory)
    require_finished(directory)
    require_here(directory)
    config, clock = load(directory), SystemClock()
    if begin:
        await _begin(directory, config)
    options: Any = {"lower_limits": lower_limits, "own_process": True}
    work: ControlPlane | StandbyMachine | AgainAndAgain
    if config.standby.machine:

        def plane(settings: HubConfig, leadership: Leadership) -> ControlPlane:
            return ControlPlane(directory, settings, clock, leadership=leadership, **options)

        work = StandbyMachine(directory, config, clock, plane)
    else:
        work = AgainAndAgain(lambda: ControlPlane(directory, config, clock, **options))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.stop)
    with_page = config.page.listen and not no_page
    # An event loop that stands still tells systemd nothing: a machine that hangs is started anew.
    alive = asyncio.create_task(Notifier(os.environ).watchdog(lambda: True))
    try:
        async with page_beside(directory) if with_page else contextlib.nullcontext():
            await work.run()
    except* HubError as group:
        raise group.exceptions[0] from None
    finally:
        alive.cancel()
    structlog.get_logger().info("stopped")


class AgainAndAgain:
    """Runs a control plane, and another one where it has ended for that (`control.erasing`)."""

    def __init__(self, plane: Callable[[], ControlPlane]) -> None:
        self._make = plane
        self._plane = plane()
        self._stopped = False

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stopped = True
        self._plane.stop()

    async def run(self) -> None:
        """Serve until `stop`. Raises: as `ControlPlane.run`."""
        while True:
            await self._plane.run()
            if self._stopped or not self._plane.starts_again:
                return
            self._plane = self._make()


async def _begin(directory: Path, config: HubConfig) -> None:
    """Begin a journal with the hub.db of this machine. Raises: HubError: a control plane runs somewhere."""
    if not config.standby.machine:
        raise HubError("[standby] in hub.toml names no machine", hint="see docs/cluster.md")
    async with connected(config.nats.url, config.nats.system) as system:
        await SingleInstance(system, 0, system.new_inbox()).require_alone()
        async with hub_client(directory) as client:
            await begin_journal(client, directory, config)
