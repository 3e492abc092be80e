"""`backhaul-agent run`: Run the agent until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path

import click

from backhaul_agent import logs
from backhaul_agent.cli.options import config_option
from backhaul_agent.config import Config
from backhaul_agent.config_file import load
from backhaul_agent.daemon import Daemon
from backhaul_agent.enrol.vehicle_files import DEVICE_CREDS
from backhaul_runtime.clock import SystemClock, boot_id
from backhaul_runtime.systemd_notify import Notifier


@click.command(name="run")
@config_option
def command(path: Path) -> None:
    """Run the agent until SIGTERM or SIGINT; see agent/README.md for the configuration."""
    config = load(path)
    logs.configure(config.log.level)
    # Where systemd keeps /etc from us, what watches this directory carries the login there.
    state = os.environ.get("STATE_DIRECTORY")
    credentials = Path(state) / DEVICE_CREDS if state else path.with_name(DEVICE_CREDS)
    asyncio.run(_run(config, credentials))


async def _run(config: Config, credentials: Path) -> None:
    daemon = Daemon(
        config,
        clock=SystemClock(),
        random_u32=lambda: secrets.randbits(32),
        notifier=Notifier(os.environ),
        boot=boot_id(),
        credentials=credentials,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    await daemon.run()
