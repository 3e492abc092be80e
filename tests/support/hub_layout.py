"""What a test's hub on this machine is told, in the process that runs the test."""

from __future__ import annotations

from typing import Any

from backhaul_hub.setup.hub_directory import HubLayout


def local_layout(client_port: int, leaf_port: int, **more: Any) -> HubLayout:
    """Return the layout of a hub with one shard of UP; `more` are HubLayout's other fields."""
    host = "127.0.0.1"
    leaf_url = f"nats-leaf://{host}:{leaf_port}"
    return HubLayout(host, host, client_port, leaf_port, leaf_url, 1, 5.0, **more)
