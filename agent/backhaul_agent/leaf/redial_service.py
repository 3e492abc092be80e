"""Takes in the finding of `backhaul-agent leaf-check` that the leaf server does not dial, and answers it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import cancels, heed_cancel
from backhaul_agent.leaf.redial import Redial

SUBJECT = "agent.leaf_check"
REASON_CHARACTERS_MAX = 300
log = structlog.get_logger("leaf")


class NotDialing(msgspec.Struct, forbid_unknown_fields=True):
    """The finding of a check, in words."""

    not_dialing: str


_decode = msgspec.json.Decoder(NotDialing).decode


async def serve(client: Client, redial: Redial, now_s: Callable[[], float]) -> None:
    """Answer for as long as the connection lives, on the agent's own connection alone: no program is asked.

    Raises:
        NatsError: the connection is gone.
    """

    async def answer(message: Msg) -> None:
        try:
            reason = _decode(message.data).not_dialing[:REASON_CHARACTERS_MAX]
        except msgspec.DecodeError:
            return
        restart = redial.found(reason, now_s())
        if restart:
            log.warning("leaf_not_dialing", reason=reason, restarts=redial.restarts)
        if message.reply:
            with contextlib.suppress(NatsError):
                await client.publish(message.reply, msgspec.json.encode({"restart": restart}))

    before = cancels()
    await client.subscribe(SUBJECT, cb=answer)
    heed_cancel(before)
