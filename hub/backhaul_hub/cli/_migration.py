"""A migration with both servers at hand, for the subcommands that move a hub's streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from backhaul_hub.access.keys import read_keys
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._printing import progress
from backhaul_hub.config import load
from backhaul_hub.migrate.bridge import Bridge
from backhaul_hub.migrate.migrate import Migration
from backhaul_hub.nats.connection import connected
from backhaul_hub.nats.jetstream import Json
from backhaul_runtime.clock import SystemClock


@asynccontextmanager
async def migration_to(
    directory: Path, to: str, leafs: tuple[str, str], ca: Path
) -> AsyncIterator[Migration]:
    """Connect to both servers, and show how far the work is.

    Args:
        directory: of the hub as it is.
        to: the other server.
        leafs: the leaf ports of the one and the other.
        ca: authorities of both.
    """
    config, clock = load(directory), SystemClock()
    login = config.nats.control
    async with hub_client(directory) as here, connected(to, login) as there:
        bridge = Bridge(*leafs, login, read_keys(directory), clock, ca, there)
        with progress() as told:
            yield Migration(here, there, bridge, config, clock, directory, to, told)


def moved(states: Mapping[str, Json]) -> list[str]:
    """Return a line for each stream that was moved."""
    return [
        f"{name}: {state['messages']:,} messages up to sequence {state['last_seq']:,}"
        for name, state in states.items()
    ]
