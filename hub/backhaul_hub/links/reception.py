"""The connection over which vehicles ask, apart from all others: a flood of questions fills it alone.

The server cuts a connection that does not take what it is sent, and what comes after a flood waits
behind it. So here nothing else comes, and while a flood is seen to the connection is not there: what
waits for it is dropped with it, and whoever asked asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import heard

Listener: TypeAlias = Callable[[Client], Awaitable[None]]

_LOOK_S = 1.0
log = structlog.get_logger(__name__)


class Reception:
    """Has services listen on a connection, and on the next one.

    Args:
        connect: makes a connection in account HUB.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._listeners: tuple[Listener, ...] = ()
        self._client: Client | None = None

    async def open(self, *listeners: Listener) -> None:
        """Have these subscribe on a new connection. Raises: HubError: the server is not there."""
        self._listeners = listeners
        self._client = await self._connect()
        for listen in self._listeners:
            await listen(self._client)
        await heard(self._client)

    async def close(self) -> None:
        """Listen no more; unheard questions are dropped."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def deaf(self) -> AsyncIterator[None]:
        """Do not listen meanwhile; ends once the server is there to listen over."""
        await self.close()
        try:
            yield
        finally:
            await self._open_again()

    async def _open_again(self) -> None:
        """Open it though the server may be away; nobody else would, and no vehicle would be heard."""
        while True:
            try:
                return await self.open(*self._listeners)
            except (HubError, NatsError) as error:
                log.warning("vehicles_not_heard", error=str(error))
                await self.close()
            await asyncio.sleep(_LOOK_S)

    async def watch(self) -> None:
        """End with an error where the connection has closed by itself, for good."""
        while self._client is None or not self._client.is_closed:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        raise HubError("the connection over which vehicles ask has closed for good")
