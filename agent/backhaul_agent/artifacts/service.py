"""Artifacts for programs on the vehicle: requests on ``agent.artifact.*`` (docs/artifacts.md).

JSON both ways, but for the bytes themselves. A program reads what was fetched, and hands over what is to
be sent, in pieces: so it needs no right to the agent's directory, and the agent none to the program's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.apps.answering import answering
from backhaul_agent.apps.doors import ASKED, hear
from backhaul_agent.artifacts import room as artifact_room
from backhaul_agent.artifacts.jobs import FileState, Job
from backhaul_agent.artifacts.store import Waiting
from backhaul_agent.errors import ArtifactError, Code, RefusedError
from backhaul_agent.sync.requests import read
from backhaul_codec.protocol import blobs

if TYPE_CHECKING:
    from backhaul_agent.artifacts.manager import Artifacts

SUBJECT = "agent.artifact"
LOCAL_PIECE_BYTES = 256 * 1024
GETS_MAX = 16
PREPARED_S_MAX = 2.0  # for which a program waits for an agent that has just been started
ERROR_HEADER = "Backhaul-Error"
# The server's own word on which account asks through an import; a program's word it replaces.
REQUEST_INFO = "Nats-Request-Info"


class NameRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``get`` and ``done``."""

    name: str


class PutRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``put``."""

    name: str
    bytes: int


class IdRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``end``, ``upload`` and ``cancel``."""

    id: str


class _Spool:
    """A file that a program is handing over; when it was last written to."""

    def __init__(self, name: str, size: int, path: Path, program: str, now_s: float) -> None:
        self.name, self.size, self.path, self.program = name, size, path, program
        self.written_s = now_s
        self.held = 0
        self.digest = hashlib.sha256()


class ArtifactService:
    """Answers programs; lives as long as the daemon."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._spools: dict[str, _Spool] = {}
        # Of several programs at once, at their doors, one after the other.
        self._one_by_one = asyncio.Lock()
        self._cancelled: deque[str] = deque(maxlen=artifact_room.UPLOADS_MAX)
        artifacts.room.make_way = self._drop_idle
        self._respond = answering(self._made, error_header=ERROR_HEADER)

    async def run(self, client: Client) -> None:
        """Begin to serve; ends with the connection."""
        await hear(client, f"{SUBJECT}.>", self._on_request, **ASKED)

    async def _on_request(self, message: Msg) -> None:
        if message.reply:
            await self._respond(message)

    async def _made(self, message: Msg) -> Any:
        try:
            async with self._one_by_one:
                return await self._answer(
                    message.subject.split(".")[2:], message.data, _program(message)
                )
        except ArtifactError as error:
            raise RefusedError(error.code, str(error)) from None
        except OSError as error:
            raise RefusedError(Code.STORAGE, f"the agent's disk: {error.strerror}") from None

    async def _answer(self, tokens: list[str], data: bytes, program: str = "") -> Any:
        if not await self._artifacts.ready(PREPARED_S_MAX):
            raise RefusedError(Code.BUSY, "the directory of artifacts is not ready")
        match tokens:
            case ["list"]:
                return self._artifacts.status()
            case ["get"]:
                return self._get(read(data, NameRequest).name)
            case ["read", digest, offset]:
                return await self._read(digest, _offset(offset))
            case ["done"]:
                return await self._done(read(data, NameRequest).name)
            case ["put"]:
                return await self._put(read(data, PutRequest), program)
            case ["write", number, offset]:
                return await self._write(number, _offset(offset), data)
            case ["end"]:
                return await self._end(read(data, IdRequest).id)
            case ["upload"]:
                return self._upload(read(data, IdRequest).id)
            case ["cancel"]:
                return await self._cancel(read(data, IdRequest).id)
        raise RefusedError(Code.BAD_SUBJECT, f"{SUBJECT}.{'.'.join(tokens)} is no request")

    def _get(self, name: str) -> Any:
        _require_name(name)
        artifacts = self._artifacts
        if name not in artifacts.gets and len(artifacts.gets) >= GETS_MAX:
            raise RefusedError(Code.BUSY, f"{GETS_MAX} files are being fetched for programs")
        return artifacts.get(name).describe(artifacts.now_s())

    async def _read(self, digest: str, offset: int) -> bytes:
        for job in self._artifacts.gets.values():
            if job.digest.hex() == digest and job.state is FileState.READY and job.path is not None:
                self._artifacts.get(job.name)
                try:
                    return await asyncio.to_thread(_piece, job.path, offset)
                except FileNotFoundError:
                    # Fetched under another name as well, and done with there: it is fetched anew.
                    self._artifacts.end_get(job.name)
                    break
        raise RefusedError(Code.NO_SUCH_POINT, "this was not fetched: ask for it by name first")

    async def _done(self, name: str) -> Any:
        job = self._artifacts.end_get(name)
        if job is not None and job.path is not None:
            await asyncio.to_thread(job.path.unlink, missing_ok=True)
        return {}

    async def _put(self, request: PutRequest, program: str) -> Any:
        _require_name(request.name)
        if not 0 <= request.bytes <= blobs.BYTES_MAX:
            raise RefusedError(Code.BAD_FIELD, f"{request.bytes} is no size of a file")
        artifacts, now_s = self._artifacts, self._artifacts.now_s()
        waiting = [job.path for job in artifacts.uploads.values() if job.open and job.path]
        artifacts.room.require_place(waiting, program)
        for number in self._in_the_way(program, now_s):
            await self._drop(number)
        number = self._new_id()
        path = artifacts.store.upload(number)
        await artifacts.room.promise(path, request.bytes, program)
        self._spools[number] = _Spool(request.name, request.bytes, path, program, now_s)
        await asyncio.to_thread(path.touch, 0o600)
        return {"id": number}

    def _in_the_way(self, program: str, now_s: float) -> list[str]:
        """Return a file half handed over that makes way for one more: idle, or this program's oldest."""
        idle = self._idle(now_s)
        busy = [at for at in self._spools if at not in idle]
        own = [at for at in busy if self._spools[at].program == program]
        if program and len(own) >= artifact_room.SPOOLS_OF_ONE_MAX:
            return [*idle, own[0]]
        if len(busy) >= artifact_room.SPOOLS_MAX:
            return [*idle, (own or busy)[0]]
        return idle

    def _idle(self, now_s: float) -> list[str]:
        since_s = now_s - artifact_room.IDLE_S_MAX
        return [at for at, each in self._spools.items() if each.written_s < since_s]

    async def _drop_idle(self) -> None:
        """Give up files that nobody has written to for long: also a file that is fetched wants its room."""
        for number in self._idle(self._artifacts.now_s()):
            await self._drop(number)

    async def _drop(self, number: str) -> None:
        spool = self._spools.pop(number, None)
        if spool is not None:
            self._artifacts.room.forget(spool.path)
            await asyncio.to_thread(spool.path.unlink, missing_ok=True)

    def _new_id(self) -> str:
        """Return an id that comes after all waiting ones: a file handed over later replaces."""
        waiting = [*self._artifacts.uploads, *self._spools]
        place = 1 + max((int(each[:8], 16) for each in waiting), default=0)
        return f"{place:08x}{secrets.token_hex(4)}"

    async def _write(self, number: str, offset: int, data: bytes) -> Any:
        spool = self._spool(number)
        if offset == spool.held:
            if offset + len(data) > spool.size:
                raise RefusedError(Code.BAD_FIELD, "more bytes than were announced")
            spool.written_s = self._artifacts.now_s()
            try:
                await asyncio.to_thread(self._artifacts.store.require_free, len(data))
            except ArtifactError:
                # It makes way: the ledger needs the room, and nobody can go on with it.
                self._artifacts.room.refused["room"] += 1
                await self._drop(number)
                raise
            await asyncio.to_thread(_append, spool, data)
        return {"held": spool.held}

    async def _end(self, number: str) -> Any:
        spool = self._spool(number)
        if spool.held != spool.size:
            raise RefusedError(
                Code.BAD_FIELD, f"{spool.held} bytes came, {spool.size} were announced"
            )
        # To its end, also where the connection of who asked is lost: what is kept is sent.
        job = await asyncio.shield(self._keep(number, spool))
        return {"id": number} | job.describe(0.0)

    async def _keep(self, number: str, spool: _Spool) -> Job:
        waiting = Waiting(spool.name, spool.size, spool.digest.digest())
        await asyncio.to_thread(self._artifacts.store.keep_upload, number, waiting)
        self._spools.pop(number, None)
        self._artifacts.room.release(spool.path)
        return self._artifacts.to_send(number, waiting)

    def _upload(self, number: str) -> Any:
        if number in self._cancelled:
            raise RefusedError(Code.CANCELLED, f"the upload {number} was given up")
        job = self._artifacts.uploads.get(number)
        if job is None:
            raise RefusedError(Code.NO_SUCH_POINT, f"nothing waits to be sent as {number}")
        return job.describe(self._artifacts.now_s())

    async def _cancel(self, number: str) -> Any:
        if not self._artifacts.end_upload(number):
            raise RefusedError(Code.NO_SUCH_POINT, f"nothing waits to be sent as {number}")
        self._cancelled.append(number)
        await asyncio.to_thread(self._artifacts.store.drop_upload, number)
        return {}

    def _spool(self, number: str) -> _Spool:
        spool = self._spools.get(number)
        if spool is None:
            raise RefusedError(
                Code.NO_SUCH_POINT, "the agent was started again, or it made way: hand it over anew"
            )
        return spool


def _program(message: Msg) -> str:
    """Return the asker's account, as the leaf server says it; empty where it does not."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        said = (message.headers or {}).get(REQUEST_INFO, "null")
        return msgspec.json.decode(said, type=_RequestInfo).acc
    return ""


class _RequestInfo(msgspec.Struct):
    acc: str = ""


def _require_name(name: str) -> None:
    if not blobs.is_name(name):
        raise RefusedError(
            Code.BAD_FIELD, f"{name!r} is no name: letters, digits and . _ + - are, 128 at most"
        )


def _offset(token: str) -> int:
    """Return a place in a file. Raises: RefusedError: no file is so large, or it is no number."""
    # isdigit alone also takes digits that int() refuses, and as many as nobody can count to.
    if token.isascii() and token.isdigit() and len(token) <= len(str(blobs.BYTES_MAX)):
        return int(token)
    raise RefusedError(Code.BAD_SUBJECT, f"{token[:40]!r} is no place in a file, which is in bytes")


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(LOCAL_PIECE_BYTES)


def _append(spool: _Spool, data: bytes) -> None:
    with spool.path.open("r+b") as file:
        file.seek(spool.held)
        file.write(data)
    spool.held += len(data)
    spool.digest.update(data)
