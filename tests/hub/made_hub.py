"""A hub with the twin's streams on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_hub.config import load
from backhaul_hub.setup.hub_directory import HubLayout, create_hub

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.config import HubConfig


GIB = 1 << 30


def make_hub(
    directory: Path, *, port: int = 4222, env: str = "prod", shards: int = 1, free: int = 1000 * GIB
) -> HubConfig:
    leaf = "nats-leaf://127.0.0.1:7422"
    layout = HubLayout("127.0.0.1", "127.0.0.1", port, 7422, leaf, shards, 5.0, env=env)
    create_hub(directory, layout, free=lambda _: free)
    return load(directory)
