"""Artifacts in the object store `TWIN_BLOBS`, in the format that every NATS client reads.

Writing and listing are nats-py's own. Reading is not: its `get` cannot begin in the middle, and a
vehicle fetches pieces of an object of which the hub holds one chunk in memory at a time.
Spec: nats-server's ADR-20 (object store), ADR-31 (direct get).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, ObjectInfo, ObjectMeta, ObjectMetaOptions
from nats.js.errors import APIError, NotFoundError
from nats.js.object_store import ObjectStore as NatsObjectStore

from backhaul_hub.errors import ArtifactError, HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.twin_streams import BLOBS as STREAM
from backhaul_hub.streams.twin_streams import BLOBS_BUCKET as BUCKET
from backhaul_runtime.jetstream import API, stamp_ns

CHUNK_BYTES = 128 * 1024
_MAXIMUM_BYTES = 10077  # the server's error where a stream is full
_SILENCE_S_MAX = 10.0
_LISTED_S_MAX = 60.0
_STRAY_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Artifact:
    """One object of the store."""

    name: str
    digest: bytes
    size: int
    chunks: int
    nuid: str
    stored: str
    """When, RFC 3339 as the writer's client put it."""
    description: str = ""

    @property
    def version(self) -> str:
        """The wish for a slot of a vehicle."""
        return f"{self.name}@{self.digest.hex()}"


class _Reads(Protocol):
    def readinto(self, buffer: Any, /) -> int | None: ...


class Objects:
    """The store, over a connection in account HUB. All methods raise HubError."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=_SILENCE_S_MAX)
        self._api = JetStreamApi(client, timeout_s=_SILENCE_S_MAX)
        self._store = NatsObjectStore(BUCKET, STREAM, self._jetstream)

    async def info(self, name: str) -> Artifact | None:
        """Return the object under a name."""
        try:
            return _artifact(await self._store.get_info(name))
        except NotFoundError:
            return None
        except NatsError as error:
            raise _trouble(error) from error

    async def list(self) -> list[Artifact]:
        """Return everything there is, by name."""
        try:
            # nats-py waits for ever for the last of them, where the stream was emptied or made anew.
            async with asyncio.timeout(_LISTED_S_MAX):
                found = await self._store.list(ignore_deletes=True)
        except NotFoundError:
            return []
        except (NatsError, TimeoutError) as error:
            raise _trouble(error) from error
        return sorted(map(_artifact, found), key=lambda each: each.name)

    async def put(self, name: str, file: _Reads, *, description: str = "") -> Artifact:
        """Store a file; it is visible when all of it is there, in place of the former one."""
        meta = ObjectMeta(
            name=name,
            description=description or None,
            options=ObjectMetaOptions(max_chunk_size=CHUNK_BYTES),
        )
        try:
            return _artifact(await self._store.put(name, file, meta=meta))  # type: ignore[arg-type]
        except NatsError as error:
            raise _trouble(error) from error

    async def remove(self, name: str) -> bool:
        """Remove an object; return whether there was one."""
        try:
            await self._store.delete(name)
        except NotFoundError:
            return False
        except NatsError as error:
            raise _trouble(error) from error
        return True

    async def open(self, artifact: Artifact) -> Chunks:
        """Learn where an object's chunks are; headers only travel."""
        subject = f"$O.{BUCKET}.C.{artifact.nuid}"
        seqs, ends, end = array("Q"), array("Q"), 0
        if artifact.chunks:
            try:
                subscription = await self._jetstream.subscribe(
                    subject,
                    stream=STREAM,
                    ordered_consumer=True,
                    config=ConsumerConfig(headers_only=True),
                )
                try:
                    while True:
                        # None comes of an object that is removed or replaced meanwhile.
                        async with asyncio.timeout(_SILENCE_S_MAX):
                            message = await subscription.next_msg(timeout=None)
                        place = message.metadata
                        end += int((message.headers or {})["Nats-Msg-Size"])
                        seqs.append(place.sequence.stream)
                        ends.append(end)
                        if not place.num_pending:
                            break
                finally:
                    await subscription.unsubscribe()
            except (NatsError, TimeoutError) as error:
                raise _trouble(error) from error
        if end != artifact.size:
            raise ArtifactError(
                f"artifact {artifact.name} is damaged: {end} of {artifact.size} bytes are there",
                hint="put it again",
            )
        return Chunks(artifact, subject, seqs, ends)

    async def chunk(self, chunks: Chunks, number: int) -> bytes | None:
        """Return one chunk, None where it is gone: the object was removed or replaced."""
        request = json.dumps({"seq": chunks.seqs[number]}).encode()
        try:
            async with asyncio.timeout(_SILENCE_S_MAX):
                message = await self._client.request(
                    f"{API}.DIRECT.GET.{STREAM}",
                    request,
                    timeout=None,  # type: ignore[arg-type]
                )
        except (NatsError, TimeoutError) as error:
            raise _trouble(error) from error
        headers = message.headers or {}
        # A stored message has a sequence, an error has none.
        if headers.get("Nats-Subject") != chunks.subject or "Nats-Sequence" not in headers:
            return None
        return message.data

    async def sweep(self, now_ns: int) -> int:
        """Remove chunks that no object has, an hour old: their writer was killed. Return how many writers."""
        try:
            subjects = await self._api.subjects(STREAM, f"$O.{BUCKET}.C.>")
            known = {f"$O.{BUCKET}.C.{artifact.nuid}" for artifact in await self.list()}
            swept = 0
            for subject in subjects.keys() - known:
                last = await self._api.message(STREAM, last_by_subj=subject)
                if last and now_ns - stamp_ns(last.time) > _STRAY_NS:
                    await self._api.purge(STREAM, filter=subject)
                    swept += 1
        except NatsError as error:
            raise _trouble(error) from error
        return swept

    async def content(self, artifact: Artifact) -> AsyncIterator[bytes]:
        """Yield an object chunk by chunk; nothing after the last one if the digest is wrong.

        Raises:
            ArtifactError: it was removed meanwhile, or is damaged. Do not use what came.
        """
        chunks, digest = await self.open(artifact), hashlib.sha256()
        for number in range(len(chunks.seqs)):
            data = await self.chunk(chunks, number)
            if data is None:
                raise ArtifactError(f"artifact {artifact.name} was removed or replaced meanwhile")
            await asyncio.to_thread(digest.update, data)
            yield data
        if digest.digest() != artifact.digest:
            raise ArtifactError(
                f"artifact {artifact.name}: the SHA-256 is wrong", hint="put it again"
            )


@dataclass(frozen=True, slots=True)
class Chunks:
    """Where the chunks of one object are, and where in it each one ends."""

    artifact: Artifact
    subject: str
    seqs: array[int]
    ends: array[int]

    def at(self, offset: int) -> tuple[int, int]:
        """Return the chunk that holds a byte, and where in it."""
        number = bisect_right(self.ends, offset)
        return number, offset - (self.ends[number - 1] if number else 0)


def file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _artifact(info: ObjectInfo) -> Artifact:
    try:
        digest = base64.urlsafe_b64decode((info.digest or "").partition("=")[2])
    except binascii.Error:
        digest = b""
    return Artifact(
        info.name,
        digest,
        info.size or 0,
        info.chunks or 0,
        info.nuid or "",
        info.mtime or "",
        info.description or "",
    )


def _trouble(error: Exception) -> HubError:
    if isinstance(error, APIError) and error.err_code == _MAXIMUM_BYTES:
        return ArtifactError(
            f"the object store {BUCKET} is full",
            hint="remove artifacts, or raise its bytes_max in hub.toml",
        )
    if isinstance(error, NotFoundError):
        return ArtifactError(f"there is no object store {BUCKET}", hint="start: backhaul-hub up")
    return HubError(f"the object store {BUCKET} does not answer: {error!r}")
