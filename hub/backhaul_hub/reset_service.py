"""Resets of durables on DOWN: what a leaf asks before it sources through one.

No device reaches the hub's JetStream API itself, not even for this one question: the API goes by the
subject that it is told, and a leaf can have it told another (forged.py), as
`$JS.API.STREAM.DELETE.UP_00`. So the control plane asks in its place, by the subject that the server
has let through.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from .streams import DOWN

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

RESETS = f"hubapi.CONSUMER.RESET.{DOWN}.*"
WAITING_MAX = 1024
"""Resets under way; a leaf whose reset is passed over asks again after 5 s."""
_ANSWER_S_MAX = 5.0
# What the server puts in place of the reply that another account's question came with.
_ACROSS_ACCOUNTS = "_R_."
log = structlog.get_logger(__name__)


class ResetService:
    """Passes resets on for as long as its connection lives.

    Args:
        client: a connection in account HUB.
    """

    def __init__(self, client: Client) -> None:
        self.refused = 0
        self._client = client
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to pass on."""
        await self._client.subscribe(RESETS, cb=self._on_reset)

    async def _on_reset(self, message: Msg) -> None:
        # A forged subject comes with the reply that forged it.
        honest = message.reply.startswith(_ACROSS_ACCOUNTS)
        if not honest or len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            return
        task = asyncio.create_task(self._pass_on(message))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _pass_on(self, message: Msg) -> None:
        durable = message.subject.rpartition(".")[2]
        subject = f"$JS.API.CONSUMER.RESET.{DOWN}.{durable}"
        try:
            answer = await self._client.request(subject, message.data, timeout=_ANSWER_S_MAX)
            await message.respond(answer.data)
        except NatsError as error:
            log.warning("reset_not_passed_on", durable=durable, error=repr(error))
