"""The agent as a NATS service on the leaf: `agent.status`, and ping, info and stats by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import msgspec
import nats.micro
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.micro.request import Request

from backhaul_agent.apps.doors import ASKED, Heard, hear_at_doors
from backhaul_agent.cancellation import cancels, heed_cancel
from backhaul_agent.status.status import STATUS_SUBJECT

SERVICE = "backhaul-agent"


async def serve(client: Client, device: str, status: Callable[[], dict[str, Any]]) -> None:
    """Answer for as long as the connection lives. Raises: NatsError where it is gone."""

    async def answer(request: Request) -> None:
        body = msgspec.json.encode(status())
        with contextlib.suppress(NatsError, ValueError):  # ValueError: nobody wants an answer
            await request.respond(body)

    before = cancels()
    service = await nats.micro.add_service(
        client,
        name=SERVICE,
        version=version("backhaul"),
        description="Sync agent of this vehicle",
        metadata={"device": device},
    )
    await service.add_endpoint(name="status", subject=STATUS_SUBJECT, handler=answer)
    heed_cancel(before)

    async def at_door(message: Msg) -> None:
        if message.reply:
            with contextlib.suppress(NatsError):
                await client.publish(message.reply, msgspec.json.encode(status()))

    await hear_at_doors(client, Heard(STATUS_SUBJECT, at_door, ASKED))
