"""A hub of three servers, one of which is parted from the other two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.rig.network import Network
from tests.support.rig.patient import connect
from tests.support.rig.relay import Relay

from .conftest import lane

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from nats.aio.client import Client

    from tests.integration.clusters import Cluster
    from tests.support.rig.cluster import ClusterRig

ALONE, OTHER = "a", "b"


def laid(stack: AsyncExitStack) -> Network:
    """Return a network of relays, which end with the stack."""

    async def lay(port: int) -> Relay:
        return await stack.enter_async_context(Relay("127.0.0.1", port))

    return Network(lay)


async def connected(hub: ClusterRig, server: str) -> Client:
    """Connect to one server; the caller closes."""
    address = f"nats://127.0.0.1:{hub.client_ports[server]}"
    return await connect(**hub.options() | {"servers": [address]})


async def watermark_moves(cluster: Cluster, device: str) -> None:
    """Wait until the control plane holds more of a device than it does now."""
    # Asked anew until it is asked over a server that the control plane is connected with.
    report = await cluster.world.until(lambda report: bool(report))
    before = lane(report, device).get("watermark", 0)
    await cluster.world.until(lambda report: lane(report, device).get("watermark", 0) > before)
