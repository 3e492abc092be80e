"""Messages of a device, counted and erased in streams.

A purge takes messages out of a stream, and leaves their bytes in its files until the server rewrites these, which may
be never. So each message is deleted by itself, which has the server overwrite it; where deleting is denied, or former
versions of a subject stand in the files, the stream is put back from a snapshot of itself, which has the living alone.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import structlog
from nats.aio.client import Client

from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.snapshots import Snapshot, put_back
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import QUARANTINE
from backhaul_runtime.jetstream import MESSAGE_NOT_FOUND

log = structlog.get_logger(__name__)

_READ_MESSAGES = 512
_AT_ONCE = 64
_CHUNK_BYTES = 128 * 1024
_TRIES = 20
_SUBJECT = b"\r\nBackhaul-Subject: "
# A server that has deleted a message before says one of these.
_GONE = (MESSAGE_NOT_FOUND, 10043, 10057)


async def held(api: JetStreamApi, stream: str, subject: str) -> int:
    """Return how many messages a stream holds on subjects that fit; 0 where there is no such stream. Raises: HubError."""
    if await api.stream_info(stream) is None:
        return 0
    return sum((await api.subjects(stream, subject)).values())


async def overwrite(client: Client, api: JetStreamApi, stream: str, subject: str) -> list[int]:
    """Delete all messages of a stream on subjects that fit, each overwritten in its file; return their sequences.

    Raises:
        HubError: the server refused, or does not answer.
    """
    if await api.stream_info(stream) is None:
        return []
    reader, deleted, following = StoredReader(client, stream), list[int](), 1
    while True:
        found = await reader.read(following, _READ_MESSAGES, subject=subject)
        if not found:
            return deleted
        seqs = [message.seq for message in found]
        await delete(api, stream, seqs)
        deleted += seqs
        following = seqs[-1] + 1


async def delete(api: JetStreamApi, stream: str, seqs: Sequence[int]) -> None:
    """Have the server overwrite messages; those that are gone already are none of it. Raises: HubError."""

    async def one(seq: int) -> None:
        try:
            await api.request(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
        except JetStreamError as error:
            if error.err_code not in _GONE or await api.message(stream, seq=seq) is not None:
                raise

    for at in range(0, len(seqs), _AT_ONCE):
        await asyncio.gather(*(one(seq) for seq in seqs[at : at + _AT_ONCE]))


async def quarantined(api: JetStreamApi, device: str) -> list[int]:
    """Return the sequences of the copies in QUARANTINE of a device's messages. Raises: HubError."""
    info = await api.stream_info(QUARANTINE)
    found, seq = list[int](), info["state"]["first_seq"] if info else 1
    wanted = f"up.{device}."
    while info is not None:
        message = await api.message(QUARANTINE, seq=seq, next_by_subj=">")
        if message is None:
            break
        of = message.headers.partition(_SUBJECT)[2].partition(b"\r\n")[0].decode(errors="replace")
        if of.startswith(wanted):
            found.append(message.seq)
        seq = message.seq + 1
    return found


def entry_of(bucket: str, name: str) -> str:
    """Return the subject of an object's entry in its bucket."""
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


class Rewriting:
    """Puts streams back from snapshots of themselves, also after a kill in between.

    Args:
        directory: where a snapshot stands meanwhile; what one is left there is put back by `resume`.
    """

    def __init__(self, client: Client, api: JetStreamApi, directory: Path) -> None:
        self._client = client
        self._api = api
        self._directory = directory

    async def resume(self) -> None:
        """Put back the stream whose rewriting was cut short. Raises: HubError."""
        for note in sorted(self._directory.glob("*.json")):
            await self._put(note.stem, msgspec.json.decode(note.read_bytes()))

    async def rewrite(self, stream: str) -> None:
        """Put a stream back from a snapshot of itself: with its sequences, times and configuration, without consumers.

        Raises:
            HubError: the server refused; `resume` goes on.
        """
        assert not is_shard(stream)
        private_directory(self._directory)
        for _ in range(_TRIES):
            said = await self._take(stream)
            info = await self._api.info(stream)
            # What others have written meanwhile must not be lost with the former stream.
            if info["state"]["last_seq"] == said["state"]["last_seq"]:
                # From here on the snapshot counts, whatever is left of the stream.
                write_private(self._note(stream), msgspec.json.encode(said).decode())
                return await self._put(stream, said)
        raise HubError(f"{stream} is written to all the time", hint="it is tried again")

    async def _take(self, stream: str) -> Json:
        """Write a snapshot into its file; return the stream's configuration and state."""
        snapshot = await Snapshot.begin(self._client, self._api, stream)
        file = self._file(stream)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            async with aclosing(snapshot.chunks()) as chunks:
                async for chunk in chunks:
                    target.write(chunk)
            target.flush()
            os.fsync(descriptor)
        return {"config": snapshot.config, "state": snapshot.state}

    async def _put(self, stream: str, said: Json) -> None:
        await self._api.delete_stream(stream)
        await put_back(self._client, self._api, said, self._chunks(stream))
        info = await self._api.info(stream)
        if info["state"]["last_seq"] != said["state"]["last_seq"]:  # age may take some
            raise HubError(f"{stream} did not come back as it was: {info['state']}")
        self._note(stream).unlink()
        self._file(stream).unlink(missing_ok=True)
        log.info("stream_rewritten", stream=stream, messages=info["state"]["messages"])

    async def _chunks(self, stream: str) -> AsyncIterator[bytes]:
        with self._file(stream).open("rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk

    def _file(self, stream: str) -> Path:
        return self._directory / f"{stream}.tar.s2"

    def _note(self, stream: str) -> Path:
        return self._directory / f"{stream}.json"
