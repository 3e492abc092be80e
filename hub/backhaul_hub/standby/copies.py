"""A whole copy of hub.db, from the machine that leads to one that is too far behind the journal."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_hub.backup.files import copy_database
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.private_files import private_directory, sync_directory

log = structlog.get_logger(__name__)

SUBJECT = "journal.copy"
_CHUNK_BYTES = 256 << 10
_DIRECTORY = "standby-copies"
# A copy is made within seconds; of a large hub.db in some tens.
_ANSWER_S = 60.0


class _Question(msgspec.Struct):
    name: str = ""
    """Of a copy that was made; empty: make one."""
    offset: int = 0


class _Chunk(msgspec.Struct):
    name: str = ""
    size: int = 0
    sha256: str = ""
    content: bytes = b""
    error: str = ""


class CopyDesk:
    """Answers who asks for a copy, a piece at a time; it keeps the newest copy.

    Args:
        new_name: returns a name that no copy has had.
    """

    def __init__(self, directory: Path, new_name: Callable[[], str]) -> None:
        self._database = directory / "hub.db"
        self._place = directory / _DIRECTORY
        self._new_name = new_name
        self._turn = asyncio.Lock()
        self._made = _Chunk()

    async def open(self, client: Client) -> None:
        """Answer over a connection in account HUB, for as long as it lives."""
        await asyncio.to_thread(shutil.rmtree, self._place, ignore_errors=True)
        await client.subscribe(SUBJECT, cb=self._respond)

    async def close(self) -> None:
        """Delete the copy."""
        await asyncio.to_thread(shutil.rmtree, self._place, ignore_errors=True)

    async def _respond(self, message: Msg) -> None:
        try:
            said = await self._answer(msgspec.msgpack.decode(message.data, type=_Question))
        except (HubError, OSError, msgspec.DecodeError) as error:
            said = _Chunk(error=str(error))
        with suppress(NatsError):
            await message.respond(msgspec.msgpack.encode(said))

    async def _answer(self, question: _Question) -> _Chunk:
        if not question.name:
            async with self._turn:
                self._made = await asyncio.to_thread(self._make)
        made = self._made
        if question.name not in ("", made.name):
            raise BackupError("this copy is no longer kept: ask for another")
        content = await asyncio.to_thread(self._read, made.name, question.offset)
        return msgspec.structs.replace(made, content=content)

    def _make(self) -> _Chunk:
        shutil.rmtree(self._place, ignore_errors=True)
        private_directory(self._place)
        name = self._new_name()
        entry = copy_database(self._database, self._place / name, with_journal=True)
        return _Chunk(name, entry.bytes, entry.sha256)

    def _read(self, name: str, offset: int) -> bytes:
        with (self._place / name).open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)


async def fetch_copy(client: Client, target: Path) -> None:
    """Fetch a copy of the leader's hub.db into a file, and put it in the place of `target`, which nobody has open.

    Raises:
        HubError: no machine leads, it cannot make one, or the copy came damaged.
        OSError: it cannot be written.
    """
    partial = target.with_name(target.name + ".copy")
    partial.unlink(missing_ok=True)
    made = await _ask(client, _Question())
    digest = hashlib.sha256()
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        chunk, offset = made, 0
        while offset < made.size and chunk.content:
            await asyncio.to_thread(file.write, chunk.content)
            digest.update(chunk.content)
            offset += len(chunk.content)
            if offset < made.size:
                chunk = await _ask(client, _Question(made.name, offset))
        await asyncio.to_thread(_synced, file.fileno(), file.flush)
    if digest.hexdigest() != made.sha256:
        raise BackupError("the leader's copy of hub.db came damaged")
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    partial.replace(target)
    sync_directory(target.parent)
    log.info("copy_fetched", bytes=made.size)


def _synced(descriptor: int, flush: Callable[[], None]) -> None:
    flush()
    os.fsync(descriptor)


async def _ask(client: Client, question: _Question) -> _Chunk:
    try:
        message = await client.request(SUBJECT, msgspec.msgpack.encode(question), timeout=_ANSWER_S)
        chunk = msgspec.msgpack.decode(message.data, type=_Chunk)
    except (NatsError, msgspec.DecodeError) as error:
        raise BackupError(f"no copy of hub.db to be had: {error!r}") from error
    if chunk.error:
        raise BackupError(f"the leader makes no copy of hub.db: {chunk.error}")
    return chunk
