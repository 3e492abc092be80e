"""Holding the registry's turn, for all writers of heads besides the readers of UP."""

from __future__ import annotations

import asyncio
import contextlib

from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError

_TURN_S = 5.0
_STORED_S = 2.0


async def stored(registry: Registry) -> None:
    """Return when hub.db has all that a reader of UP has taken in, or hub.db takes nothing now."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STORED_S), registry.turn:
            pass


class WriteTurn:
    """Holds the registry's turn, so that no reader of UP merges meanwhile.

    Raises, on entering:
        HubError: nobody gave it up in time.
    """

    def __init__(self, registry: Registry) -> None:
        self._turn = registry.turn

    async def __aenter__(self) -> None:
        try:
            # What comes after is not cut short: a commit whose end nobody awaits may still be one.
            async with asyncio.timeout(_TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            raise HubError(
                f"hub.db could not be written for {_TURN_S:g} s", hint="is its disk full?"
            ) from None

    async def __aexit__(self, *exc_info: object) -> None:
        self._turn.release()
