"""The connection to the leaf server: made again, for ever, each time with a clean slate.

nats-py could reconnect by itself, but would then send what it had buffered before. A new client and
new subscriptions each time leave one state less to think about: a publish either went to this
connection or failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from backhaul_agent.apps.doors import Connect, Doors, OwnClient
from backhaul_agent.cancellation import heard, heed_cancel
from backhaul_agent.config import Config
from backhaul_agent.errors import AgentError, LoginError
from backhaul_agent.leaf.login import login_options
from backhaul_runtime.patched_client import PatchedClient

CONNECT_S_MAX = 5.0
RETRY_S_MIN, RETRY_S_MAX = 0.1, 2.0
PING_S = 10
LOOK_S = 0.5
REQUEST_S_MAX = 5.0
log = structlog.get_logger("link")


class LeafConnection:
    """Connects to the leaf server and runs a session on every connection."""

    def __init__(
        self,
        config: Config,
        on_overrun: Callable[[SlowConsumerError], None],
        doors: Callable[[Connect], Doors] | None = None,
    ) -> None:
        self.client: Client | None = None
        self.connects = 0
        self.last_error = ""
        self._config = config
        self._on_overrun = on_overrun
        self._make_doors = doors

    async def run(self, session: Callable[[Client], Awaitable[None]]) -> None:
        """Connect and run ``session`` until its connection is gone; for ever (or cancelled)."""
        retry_s = RETRY_S_MIN
        while True:
            closed = asyncio.Event()
            client = await self._connect(closed)
            if client is None:
                heed_cancel()  # a server that goes away at the agent's end would make it forgotten
                await asyncio.sleep(retry_s)
                retry_s = min(RETRY_S_MAX, retry_s * 2)
                continue
            retry_s = RETRY_S_MIN
            log.info("leaf_connected", url=self._config.nats.url)
            try:
                heed_cancel()
                self.client = client
                # In a task of its own, which keeps what a TaskGroup leaves behind (see `cancels`).
                await asyncio.create_task(self._until_closed(client, session(client), closed))
            except* (NatsError, OSError, TimeoutError, AgentError) as group:
                self._trouble(str(group.exceptions[0]))
            finally:
                self.client = None
                await _close(client)
            heed_cancel()  # a session that fails as it is cancelled would make it forgotten
            await asyncio.sleep(RETRY_S_MIN)

    async def _connect(self, closed: asyncio.Event) -> OwnClient | None:
        """Return a connected client, or None with the reason in ``last_error``."""
        try:
            login = self._login()
        except LoginError as error:
            self._trouble(str(error))
            return None
        client = OwnClient()

        async def on_closed() -> None:
            closed.set()

        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await client.connect(**login, closed_cb=on_closed, error_cb=self._on_error)
            client.doors = await self._doors(login)
        except (NatsError, OSError, TimeoutError) as error:
            self._trouble(self.last_error or str(error) or "no answer")
            await _close(client)
            return None
        self.connects += 1
        self.last_error = ""
        return client

    async def _doors(self, login: dict[str, Any]) -> Doors | None:
        """Open the doors; none where the agent has no key, and so no apps.conf beside it."""
        if self._make_doors is None or not self._config.nats.nkey:
            return None

        async def connect(
            client: PatchedClient, on_error: Callable[[Exception], Awaitable[None]]
        ) -> None:
            named = login | {"name": f"{login['name']}, for programs"}
            await client.connect(**named, error_cb=on_error)

        doors = self._make_doors(connect)
        try:
            await doors.open()
        except BaseException:
            await doors.close()
            raise
        return doors

    def _login(self) -> dict[str, Any]:
        """Return the arguments of `connect`. Raises: LoginError: the key or JWT is not usable."""
        nats, device = self._config.nats, self._config.device
        return {
            "servers": [nats.url],
            "name": f"backhaul-agent {device.id}",
            "allow_reconnect": False,
            "reconnect_time_wait": RETRY_S_MIN,
            "max_reconnect_attempts": 1,
            "connect_timeout": CONNECT_S_MAX,
            "ping_interval": PING_S,
            "max_outstanding_pings": 2,
            "flush_timeout": CONNECT_S_MAX,
            **login_options(
                user=nats.user,
                password=nats.password,
                credentials=nats.credentials,
                nkey=nats.nkey,
            ),
        }

    async def _until_closed(
        self, client: OwnClient, session: Awaitable[None], closed: asyncio.Event
    ) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_as_coroutine(session))
            opening = group.create_task(client.doors.run()) if client.doors else None
            # nats-py's closed callback is left out where its close is cut short, now and then when
            # the leaf is killed under load. Its state is right all the same, so that is asked too.
            while not (closed.is_set() or client.is_closed):
                await heard(closed, LOOK_S)
            log.warning("leaf_disconnected", error=self.last_error)
            self.client = None  # nobody is to be told of a connection while its session ends
            running.cancel()
            if opening is not None:
                opening.cancel()

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            self._on_overrun(error)
            return
        self._trouble(str(error) or type(error).__name__)

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes."""
        if error != self.last_error:
            log.warning("leaf_unreachable", error=error)
        self.last_error = error


async def _close(client: OwnClient) -> None:
    try:
        if client.doors is not None:
            await client.doors.close()
    finally:
        await client.close()


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


def requester(client: Client) -> Callable[[str, bytes], Awaitable[bytes]]:
    """Return a function that sends a request on this connection and waits for the answer."""

    async def request(subject: str, payload: bytes) -> bytes:
        message = await client.request(subject, payload, timeout=REQUEST_S_MAX)
        return message.data

    return request
