"""A hub whose server runs, and whose control plane does not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout
from tests.support.rig.parts import HubRig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def server_alone(directory: Path) -> AsyncIterator[HubRig]:
    """Make a hub in a new directory, and start its server; stop all of it at the end."""
    rig = HubRig(directory)
    create_hub(rig.directory, local_layout(rig.client_port, rig.leaf_port))
    try:
        await rig.server.start()
        await rig.server.wait_listening(rig.client_port)
        yield rig
    finally:
        await rig.stop()
