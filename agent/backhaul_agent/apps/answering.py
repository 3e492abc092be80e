"""An answer to each question of a program, also to one that nobody foresaw: it never waits in vain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.errors import Code, LedgerStorageError, RefusedError

log = structlog.get_logger("requests")


def refusal_of(subject: str, error: Exception) -> RefusedError:
    """Return the answer to a program whose question raised an error. A fault of ours is logged, with its traceback."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, LedgerStorageError):
        return RefusedError(Code.STORAGE, str(error))
    log.error("request_failed", subject=subject[:200], exc_info=error)
    return RefusedError(
        Code.INTERNAL, "a fault of the agent, not of this request: its log has the traceback"
    )


def answering(
    handle: Callable[[Msg], Awaitable[Any]], *, error_header: str = ""
) -> Callable[[Msg], Awaitable[None]]:
    """Return a callback that answers with the result of `handle`: bytes as they are, other values as JSON.

    An error of `handle` is answered with its refusal; ``error_header`` names a header for the code.
    """

    async def on_message(message: Msg) -> None:
        headers = None
        try:
            answer = await handle(message)
            payload = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            size, room = len(payload), message._client.max_payload
            if size > room:
                text = f"the answer has {size} bytes, {room} fit: ask for less"
                raise RefusedError(Code.TOO_LARGE, text)  # noqa: TRY301 - answered as the others are
        except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
            refusal = refusal_of(message.subject, error)
            payload = msgspec.json.encode(refusal.as_json())
            headers = {error_header: refusal.code} if error_header else None
        if not message.reply:
            return
        try:
            await message._client.publish(message.reply, payload, headers=headers)
        except NatsError as error:
            log.warning("answer_not_sent", subject=message.subject, error=str(error))

    return on_message
