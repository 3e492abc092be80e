"""The JetStream API as plain JSON requests.

nats-py's typed configurations do not know durable sources, the flow_control ack policy or every
2.15 field; a dict sent and a dict received loses nothing.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from nats.errors import NoRespondersError

from .errors import HubError, JetStreamError

if TYPE_CHECKING:
    from nats.aio.client import Client

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
WRONG_LAST_SEQUENCE = 10071
INSUFFICIENT_STORAGE = 10047
SUBJECTS_OVERLAP = 10065
REPLICAS_NOT_SUPPORTED = 10074

Json = dict[str, Any]


class JetStreamApi:
    """JetStream API requests over one connection.

    Args:
        client: a connection in the account whose JetStream is meant.
        timeout_s: how long one request may take, by the event loop's clock.
    """

    def __init__(self, client: Client, *, timeout_s: float = 10.0) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def request(self, verb: str, body: Json | None = None) -> Json:
        """Send `$JS.API.<verb>` and return the answer.

        Raises:
            JetStreamError: the server answered with an error.
            HubError: nobody answered in time.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        return await self._ask(f"$JS.API.{verb}", payload, None)

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Json:
        """Store a message in the stream that takes this subject; return the acknowledgement.

        Raises:
            JetStreamError: the stream refused it.
            HubError: no stream takes it, or there was no answer in time.
        """
        return await self._ask(subject, payload, headers)

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str] | None) -> Json:
        try:
            # nats-py's own time limit is asyncio.wait_for, which before Python 3.12 loses a
            # cancellation that comes together with the answer (bpo-37658).
            async with asyncio.timeout(self._timeout_s):
                message = await self._client.request(
                    subject,
                    payload,
                    timeout=None,  # type: ignore[arg-type]
                    headers=headers,
                )
        except NoRespondersError:
            raise HubError(
                f"no JetStream behind {subject}", hint="does this user belong to account HUB?"
            ) from None
        except TimeoutError:
            raise HubError(f"no answer to {subject} in {self._timeout_s:g} s") from None
        answer: Json = json.loads(message.data)
        if error := answer.get("error"):
            raise JetStreamError(subject, error.get("err_code", 0), error.get("description", ""))
        return answer

    async def stream_info(self, stream: str) -> Json | None:
        """Return a stream's info, None where there is no such stream."""
        try:
            return await self.request(f"STREAM.INFO.{stream}")
        except JetStreamError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    async def consumer_info(self, stream: str, consumer: str) -> Json | None:
        """Return a consumer's info, None where there is no such consumer."""
        try:
            return await self.request(f"CONSUMER.INFO.{stream}.{consumer}")
        except JetStreamError as error:
            if error.code == CONSUMER_NOT_FOUND:
                return None
            raise
