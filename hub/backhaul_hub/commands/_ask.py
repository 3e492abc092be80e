"""Asking the running control plane, for the subcommands that do."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from backhaul_hub.config import load
from backhaul_hub.connection import connect
from backhaul_hub.errors import HubError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

_TIMEOUT_S = 10.0


def ask(directory: Path, service: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask one question and return the answer.

    Raises:
        HubError: no server, no control plane; or the control plane refused, in its own words.
    """
    return asyncio.run(_ask(directory, service, question or {}))


@asynccontextmanager
async def hub_client(directory: Path) -> AsyncIterator[Client]:
    """Connect to the hub's server as the control plane does, and close it at the end."""
    config = load(directory)
    client = await connect(config.nats.url, config.nats.control)
    try:
        yield client
    finally:
        await client.close()


async def ask_over(
    client: Client, directory: Path, service: str, question: dict[str, Any]
) -> dict[str, Any]:
    """Ask over a connection that is open already. Raises: HubError, as `ask`."""
    try:
        message = await client.request(service, json.dumps(question).encode(), timeout=_TIMEOUT_S)
    except NatsError as error:
        raise HubError(
            f"the control plane does not answer: {error!r}",
            hint=f"start it with: backhaul-hub up --dir {directory}",
        ) from error
    answer: dict[str, Any] = json.loads(message.data)
    if refused := answer.get("error"):
        raise HubError(refused["message"], hint=refused.get("hint", ""))
    return answer


async def _ask(directory: Path, service: str, question: dict[str, Any]) -> dict[str, Any]:
    async with hub_client(directory) as client:
        return await ask_over(client, directory, service, question)
