"""The calls of JetStream's API that agent and hub make alike, each over its own connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from backhaul_runtime.jetstream import (
    CONSUMER_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    Refusal,
    StreamMessage,
    message_in,
)

SUBJECTS_MAX = 100_000
"""So many subjects of a stream the server names in one answer."""


class RefusedByServer(Exception):
    """The server answered a request of the API with an error; each component has a class of its own for it.

    Fields: ``code`` as in HTTP, ``err_code`` the server's own number, ``description`` its words.
    """

    code: int
    err_code: int
    description: str


class JetStreamCalls(ABC):
    """Asks a server's JetStream. Each call raises the errors of `request`."""

    no_message = frozenset({MESSAGE_NOT_FOUND})
    """The errors that say of a message that it is not there."""

    @abstractmethod
    async def request(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask for an action, as `STREAM.INFO.UP_00`, and return the answer. Raises: RefusedByServer."""

    @abstractmethod
    def refused(self, verb: str, refusal: Refusal) -> RefusedByServer:
        """Return the component's own error for a refusal."""

    async def message(self, stream: str, **query: int | str) -> StreamMessage | None:
        """Return a message by the word of the stream's leader, None where there is none.

        By `seq=`, by `last_by_subj=`, or the first from `seq=` on with `next_by_subj=`. A direct get is answered by
        any server of a cluster, which may not have what the leader has.

        Raises:
            RefusedByServer: the stream is not there, or the message cannot be read.
        """
        verb = f"STREAM.MSG.GET.{stream}"
        answer = await self._unless(self.no_message, verb, dict(query))
        try:
            return message_in(answer) if answer is not None else None
        except ValueError as error:
            raise self.refused(verb, Refusal(0, 0, f"bad base64: {error}")) from error

    async def stream_info(self, stream: str) -> dict[str, Any] | None:
        """Return a stream's info, None where there is no such stream."""
        return await self._unless([STREAM_NOT_FOUND], f"STREAM.INFO.{stream}")

    async def info(self, stream: str) -> dict[str, Any]:
        """Return the info of a stream; it is an error if there is no such stream."""
        return await self.request(f"STREAM.INFO.{stream}")

    async def create_stream(self, config: dict[str, Any]) -> None:
        """Create the stream that a configuration names."""
        await self.request(f"STREAM.CREATE.{config['name']}", config)

    async def update_stream(self, config: dict[str, Any]) -> None:
        """Give the stream that a configuration names this whole configuration."""
        await self.request(f"STREAM.UPDATE.{config['name']}", config)

    async def subjects(self, stream: str, pattern: str) -> dict[str, int]:
        """Return a stream's subjects that fit a pattern, with their numbers of messages."""
        found: dict[str, int] = {}
        while True:
            ask = {"subjects_filter": pattern, "offset": len(found)}
            page = (await self.request(f"STREAM.INFO.{stream}", ask))["state"].get("subjects") or {}
            found |= page
            if len(page) < SUBJECTS_MAX:
                return found

    async def purge(self, stream: str, **what: int | str) -> None:
        """Remove messages: those below `seq=`, those on the subject `filter=`; by both, by both.

        The next message of a stream gets at least the sequence `seq`.
        """
        await self.request(f"STREAM.PURGE.{stream}", what)

    async def delete_stream(self, stream: str) -> bool:
        """Delete a stream; return whether there was one."""
        return await self._unless([STREAM_NOT_FOUND], f"STREAM.DELETE.{stream}") is not None

    async def consumer_info(self, stream: str, consumer: str) -> dict[str, Any] | None:
        """Return a consumer's info, None where there is no such consumer."""
        return await self._unless([CONSUMER_NOT_FOUND], f"CONSUMER.INFO.{stream}.{consumer}")

    async def set_consumer(self, stream: str, config: dict[str, Any], action: str = "") -> None:
        """Create a durable, or update the one of its name; `action`: "create" or "update" does one of both alone."""
        request = {"stream_name": stream, "config": config, "action": action}
        await self.request(f"CONSUMER.CREATE.{stream}.{config['durable_name']}", request)

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Delete a consumer, if there is one."""
        await self._unless([CONSUMER_NOT_FOUND], f"CONSUMER.DELETE.{stream}.{consumer}")

    async def _unless(
        self, absent: Collection[int], verb: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        try:
            return await self.request(verb, body)
        except RefusedByServer as error:
            if error.err_code in absent:
                return None
            raise
