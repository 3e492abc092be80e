"""Running commands of ours in this process: starting a Python for each takes most of a second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import backhaul_agent.cli.main
import backhaul_hub.cli.main

if TYPE_CHECKING:
    import click

_COMMANDS: dict[str, click.Command] = {
    "backhaul-agent": backhaul_agent.cli.main.cli,
    "backhaul-hub": backhaul_hub.cli.main.cli,
}


async def run_here(arguments: list[str]) -> str:
    """Run a command to its end; what it prints is seen with the test's output, and not returned.

    Raises:
        HubError, AgentError, ClickException: as the command does.
    """
    name, *words = arguments
    # In a thread, as commands have an event loop of their own.
    await asyncio.to_thread(_COMMANDS[Path(name).name].main, words, standalone_mode=False)
    return ""
