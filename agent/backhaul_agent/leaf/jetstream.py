"""The JetStream API of the leaf server, as plain JSON requests.

nats-py's typed configurations do not know everything the server does (the `flow_control` ack
policy), so requests and answers stay dictionaries here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from backhaul_agent.errors import JetStreamError
from backhaul_runtime.jetstream import (
    API,
    NOT_FOUND,
    StreamMessage,
    covers,
    message_in,
    read_answer,
)

# Said when a stream is made and never later: a server that restarts with a first_seq above the
# stream's first message purges the stream.
_AT_CREATION = frozenset({"first_seq"})
# Said when a durable is made; from then on it follows what the link carries (uplink/flow_control.py).
_ADAPTED = frozenset({"max_ack_pending"})


class JetStream:
    """Asks the server; ``request(subject, payload)`` sends, waits with a deadline, returns bytes."""

    def __init__(self, request: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self._request = request

    async def call(self, request: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one API request, e.g. ``STREAM.INFO.OUT_live``, and return the answer.

        Raises:
            JetStreamError: the server answered with an error, or with something else than JSON.
        """
        payload = msgspec.json.encode(body) if body is not None else b""
        answer, refusal = read_answer(await self._request(f"{API}.{request}", payload))
        if refusal is not None:
            raise JetStreamError(request, *refusal)
        return answer

    async def created_and_state(self, stream: str) -> tuple[str, dict[str, Any]]:
        """Return when a stream was made, and its state: ``messages``, ``last_seq`` and more."""
        answer = await self.call(f"STREAM.INFO.{stream}")
        return str(answer["created"]), answer["state"]

    async def message(self, stream: str, **query: int | str) -> StreamMessage | None:
        """Return a message, or None where there is none.

        By ``seq=``, by ``last_by_subj=``, or the first from ``seq=`` on with ``next_by_subj=``.
        """
        try:
            return message_in(await self.call(f"STREAM.MSG.GET.{stream}", query))
        except JetStreamError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        except ValueError as error:
            raise JetStreamError("STREAM.MSG.GET", 0, 0, f"bad base64: {error}") from error

    async def purge(self, stream: str, next_seq: int) -> None:
        """Remove everything below ``next_seq``; also the next message then gets it, at least."""
        await self.call(f"STREAM.PURGE.{stream}", {"seq": next_seq})

    async def subjects(self, stream: str, pattern: str) -> list[str]:
        """Return a stream's subjects that fit a pattern: up to 100,000, the server's page."""
        answer = await self.call(f"STREAM.INFO.{stream}", {"subjects_filter": pattern})
        return list(answer["state"].get("subjects") or {})

    async def purge_subject(self, stream: str, subject: str, *, before_seq: int) -> None:
        """Remove a stream's messages on a subject below a sequence."""
        await self.call(f"STREAM.PURGE.{stream}", {"filter": subject, "seq": before_seq})

    async def ensure_stream(self, config: dict[str, Any]) -> bool:
        """Create the stream, or update it where it differs; return whether anything changed."""
        name = config["name"]
        try:
            current = (await self.call(f"STREAM.INFO.{name}"))["config"]
        except JetStreamError as error:
            if error.code != NOT_FOUND:
                raise
            await self.call(f"STREAM.CREATE.{name}", config)
            return True
        lasting = {key: value for key, value in config.items() if key not in _AT_CREATION}
        if covers(current, lasting):
            return False
        await self.call(f"STREAM.UPDATE.{name}", current | lasting)
        return True

    async def ensure_consumer(self, stream: str, config: dict[str, Any]) -> bool:
        """Create the durable, or update it where it differs; return whether anything changed."""
        name = config["durable_name"]
        try:
            current = (await self.call(f"CONSUMER.INFO.{stream}.{name}"))["config"]
            lasting = {key: value for key, value in config.items() if key not in _ADAPTED}
            if covers(current, lasting):
                return False
            config = config | {key: current[key] for key in _ADAPTED & current.keys()}
        except JetStreamError as error:
            if error.code != NOT_FOUND:
                raise
        request = {"stream_name": stream, "config": config}
        await self.call(f"CONSUMER.CREATE.{stream}.{name}", request)
        return True
