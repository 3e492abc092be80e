"""One control plane at a time: of two that see each other the younger ends.

Not a lock: two that cannot see each other stand on two sides of a cut between servers, and only one
side has the majority without which nothing is stored. When the cut heals, the younger ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import heard

SUBJECT = "hub.control"
_ANNOUNCE_S = 5.0
_ASK_S = 1.0
# One that is there may not get to answer for a while, on a machine with much to do.
_ASKS = 5


class SingleInstance:
    """Sees to it that this control plane is the only one.

    Args:
        client: a connection in the system account.
        since_ns: when this one was started, ns since the Unix epoch.
        id_: no other control plane's.
    """

    def __init__(self, client: Client, since_ns: int, id_: str) -> None:
        self._client = client
        self._own = (since_ns, id_)
        self._found = asyncio.Event()

    async def start(self) -> None:
        """Raise where one is running already, and answer those that come later.

        Raises:
            HubError: there is one.
        """
        await self.require_alone()
        await self.answer()

    async def answer(self) -> None:
        """Answer those that come later, without having looked."""
        await self._client.subscribe(SUBJECT, cb=self._heard)
        await heard(self._client)  # whoever comes next

    async def require_alone(self) -> None:
        """Raise where one is running, without being one.

        Raises:
            HubError: there is one.
        """
        if await self._is_answered():
            raise _another()

    async def watch(self) -> None:
        """Announce ourselves now and then; end with an error once an older one is heard.

        Raises:
            HubError: there is one.
        """
        while True:
            # Of a server that is away for long nats-py takes nothing more: to be said when it is back.
            with contextlib.suppress(NatsError):
                await self._client.publish(SUBJECT, self._body())
            try:
                async with asyncio.timeout(_ANNOUNCE_S):
                    await self._found.wait()
            except TimeoutError:
                continue
            raise _another()

    async def _is_answered(self) -> bool:
        for _ in range(_ASKS):
            try:
                await self._client.request(SUBJECT, self._body(), timeout=_ASK_S)
            except NoRespondersError:
                return False
            except NatsError:
                continue
            return True
        # It is subscribed and silent: its machine is gone, and the server has not noticed yet.
        return False

    def _body(self) -> bytes:
        return json.dumps(self._own).encode()

    async def _heard(self, message: Msg) -> None:
        try:
            since_ns, id_ = json.loads(message.data)
            other = (int(since_ns), str(id_))
        except (ValueError, TypeError):
            return
        if other == self._own:
            return
        if message.reply:
            await message.respond(self._body())
        elif other < self._own:
            self._found.set()


def _another() -> HubError:
    return HubError(
        "another control plane of this hub is running", hint="stop it first; one is enough"
    )
