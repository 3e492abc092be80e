"""The control plane as a NATS service in account HUB: `hub.status`, and ping, info and stats."""

from __future__ import annotations

import contextlib
import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import nats.micro
from nats.errors import Error as NatsError

from backhaul_hub.health.watch import STATUS_SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.micro.request import Request

SERVICE = "backhaul-hub"


async def serve(client: Client, status: Callable[[], dict[str, Any]]) -> None:
    """Answer for as long as the connection lives."""

    async def answer(request: Request) -> None:
        body = json.dumps(status()).encode()
        with contextlib.suppress(NatsError, ValueError):  # ValueError: nobody wants an answer
            await request.respond(body)

    service = await nats.micro.add_service(
        client, name=SERVICE, version=version("backhaul"), description="Control plane of the hub"
    )
    await service.add_endpoint(name="status", subject=STATUS_SERVICE, handler=answer)
