"""The control plane as a NATS service in account HUB: endpoints, and ping, info and stats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import nats.micro
from nats.aio.client import Client

SERVICE = "backhaul-hub"


async def announce(
    client: Client, name: str, subject: str, respond: Callable[[Any], Awaitable[None]]
) -> None:
    """Have requests on a subject answered, as an endpoint of the service, while the connection lives."""
    service = await nats.micro.add_service(
        client, name=SERVICE, version=version("backhaul"), description="Control plane of the hub"
    )
    await service.add_endpoint(name=name, subject=subject, handler=respond)
