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
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    Refusal,
    covers,
    lasting,
    read_answer,
)
from backhaul_runtime.jetstream_calls import JetStreamCalls

# Said when a durable is made; from then on it follows what the link carries (uplink/flow_control.py).
_ADAPTED = frozenset({"max_ack_pending"})


class JetStream(JetStreamCalls):
    """Asks the server; ``request(subject, payload)`` sends, waits with a deadline, returns bytes."""

    no_message = frozenset({MESSAGE_NOT_FOUND, STREAM_NOT_FOUND})

    def __init__(self, request: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self._ask = request

    async def request(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one API request, e.g. ``STREAM.INFO.OUT_live``, and return the answer.

        Raises:
            JetStreamError: the server answered with an error, or with something else than JSON.
        """
        payload = msgspec.json.encode(body) if body is not None else b""
        answer, refusal = read_answer(await self._ask(f"{API}.{verb}", payload))
        if refusal is not None:
            raise self.refused(verb, refusal)
        return answer

    def refused(self, verb: str, refusal: Refusal) -> JetStreamError:
        """Return the agent's error for a refusal."""
        return JetStreamError(verb, *refusal)

    async def created_and_state(self, stream: str) -> tuple[str, dict[str, Any]]:
        """Return when a stream was made, and its state: ``messages``, ``last_seq`` and more."""
        answer = await self.info(stream)
        return str(answer["created"]), answer["state"]

    async def ensure_stream(self, config: dict[str, Any]) -> bool:
        """Create the stream, or update it where it differs; return whether anything changed."""
        info = await self.stream_info(config["name"])
        if info is None:
            await self.create_stream(config)
            return True
        wanted = lasting(config)
        if covers(info["config"], wanted):
            return False
        await self.update_stream(info["config"] | wanted)
        return True

    async def ensure_consumer(self, stream: str, config: dict[str, Any]) -> bool:
        """Create the durable, or update it where it differs; return whether anything changed."""
        info = await self.consumer_info(stream, config["durable_name"])
        if info is not None:
            current = info["config"]
            if covers(current, {key: config[key] for key in config.keys() - _ADAPTED}):
                return False
            config = config | {key: current[key] for key in _ADAPTED & current.keys()}
        await self.set_consumer(stream, config)
        return True
