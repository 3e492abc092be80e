"""JetStream's snapshot protocol: a stream as a run of chunks, out of a server and into one.

The server sends no more than its window (8 MB) before it hears that chunks were taken, so memory
stays flat however large the stream is. Spec: `$JS.API.STREAM.SNAPSHOT` and `.RESTORE`, nats-server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from backhaul_hub.errors import BackupError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import inbox_subject

_CHUNK_BYTES = 128 * 1024
_SILENCE_S_MAX = 30.0
_WHOLE = "204"
_NOBODY = "503"


class Snapshot:
    """A snapshot under way: `config` and `state` at once, then the `chunks`, once."""

    def __init__(self, stream: str, answer: Json, client: Client, chunks: Subscription) -> None:
        self.config: Json = answer["config"]
        self.state: Json = answer["state"]
        self._stream = stream
        self._client = client
        self._chunks = chunks

    @classmethod
    async def begin(cls, client: Client, api: JetStreamApi, stream: str) -> Snapshot:
        """Ask for a snapshot of a stream, without its consumers.

        Raises:
            HubError: there is no such stream, or nobody answered.
        """
        inbox = inbox_subject(stream, client.new_inbox())
        chunks = await client.subscribe(inbox)
        request = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": _CHUNK_BYTES}
        try:
            answer = await api.request(f"STREAM.SNAPSHOT.{stream}", request)
        except BaseException:
            await chunks.unsubscribe()
            raise
        return cls(stream, answer, client, chunks)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks; the server is told of each one once it was taken.

        Raises:
            BackupError: the server gave up, or fell silent.
        """
        try:
            while True:
                message = await self._next()
                if not message.data:
                    self._check_end(message.headers or {})
                    return
                yield message.data
                if message.reply:
                    await self._client.publish(message.reply)
        finally:
            if not self._client.is_closed:
                await self._chunks.unsubscribe()

    async def _next(self) -> Any:
        try:
            async with asyncio.timeout(_SILENCE_S_MAX):
                return await self._chunks.next_msg(timeout=None)
        except (TimeoutError, NatsError) as error:
            raise BackupError(
                f"the snapshot of {self._stream} ended before its end: {error!r}",
                hint="run it again: what is finished is kept",
            ) from error

    def _check_end(self, headers: dict[str, str]) -> None:
        # A server before 2.11 ends with an empty message that says nothing.
        status = headers.get("Status", _WHOLE)
        if status != _WHOLE:
            why = headers.get("Description", "")
            raise BackupError(
                f"the server broke off the snapshot of {self._stream}: {status} {why}"
            )


async def put_back(
    client: Client, api: JetStreamApi, snapshot: Json, chunks: AsyncIterable[bytes]
) -> None:
    """Make a stream from a snapshot; there is none of its name before, and none if this fails.

    `snapshot` is `config` and `state`; the name stays, the rest of the configuration may differ.

    Raises:
        HubError: the server refused it, or nobody answered.
    """
    stream = snapshot["config"]["name"]
    answer = await api.request(f"STREAM.RESTORE.{stream}", snapshot)
    place = answer["deliver_subject"]
    inbox = inbox_subject(stream, client.new_inbox())
    answers = await client.subscribe(inbox)
    try:
        async for chunk in chunks:
            await client.publish(place, chunk, reply=inbox)
            if told := await _told(stream, answers):
                _check(stream, told)
        # An empty message says that this was all; only then the server looks into it.
        await client.publish(place, b"", reply=inbox)
        _check(stream, await _told(stream, answers))
    finally:
        if not client.is_closed:
            await answers.unsubscribe()


async def copy(
    source: Snapshot, client: Client, api: JetStreamApi, change: Callable[[Json], Json]
) -> None:
    """Put a snapshot into another server while it comes; `change` may alter the configuration."""
    async with aclosing(source.chunks()) as chunks:
        snapshot = {"config": change(source.config), "state": source.state}
        await put_back(client, api, snapshot, chunks)


async def _told(stream: str, answers: Subscription) -> bytes:
    try:
        async with asyncio.timeout(_SILENCE_S_MAX):
            message = await answers.next_msg(timeout=None)
    except (TimeoutError, NatsError) as error:
        raise BackupError(f"{stream}: the server takes no more of it: {error!r}") from error
    if (message.headers or {}).get("Status") == _NOBODY:
        raise BackupError(f"{stream}: the server takes no more of it")
    return message.data


def _check(stream: str, answer: bytes) -> None:
    try:
        error = json.loads(answer).get("error")
    except ValueError:
        raise BackupError(f"{stream}: the server answers {answer[:100]!r}") from None
    if error:
        raise BackupError(f"{stream} cannot be put back: {error.get('description')}")
