"""Reading streams of a cluster that may be choosing leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from backhaul_hub.errors import HubError

log = structlog.get_logger(__name__)

_AGAIN_S = 0.25


async def patiently(read: Callable[[], Awaitable[None]], patience_s: float) -> None:
    """Read, and read again after an error, for so many seconds (event loop's clock).

    Args:
        read: may be done again, also after it was done in part.
        patience_s: 0: once.

    Raises:
        HubError: the last one of `read`.
    """
    clock = asyncio.get_running_loop()
    end_s = clock.time() + patience_s
    while True:
        try:
            return await read()
        except HubError as error:
            if clock.time() >= end_s:
                raise
            log.info("reads_again", error=str(error))
        await asyncio.sleep(_AGAIN_S)
