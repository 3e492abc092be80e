"""Messages as a source stores them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.client import Client


async def sourced(client: Client, count: int) -> None:
    """Wait until TWIN_EVENTS holds so many messages."""
    js = client.jetstream()
    async with asyncio.timeout(60):
        while (await js.stream_info("TWIN_EVENTS")).state.messages < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
