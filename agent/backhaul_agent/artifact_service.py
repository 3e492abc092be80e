"""Artifacts for programs on the vehicle: requests on ``agent.artifact.*`` (docs/artifacts.md).

JSON both ways, but for the bytes themselves. A program reads what was fetched, and hands over what is to
be sent, in pieces: so it needs no right to the agent's directory, and the agent none to the program's.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.artifact_jobs import State
from backhaul_agent.artifact_store import Waiting
from backhaul_agent.config_requests import read
from backhaul_agent.errors import ArtifactError, Code, RefusedError
from backhaul_codec import blobs

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.artifact_jobs import Job
    from backhaul_agent.artifacts import Artifacts

SUBJECT = "agent.artifact"
LOCAL_PIECE_BYTES = 256 * 1024
SPOOLS_MAX = 4  # half handed over; the oldest makes way
UPLOADS_MAX = 64  # waiting to be sent
GETS_MAX = 16
PREPARED_S_MAX = 2.0  # for which a program waits for an agent that has just been started
ERROR_HEADER = "Backhaul-Error"
log = structlog.get_logger("artifacts")


class NameRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What ``get`` and ``done`` take."""

    name: str


class PutRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What ``put`` takes."""

    name: str
    bytes: int


class IdRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What ``end``, ``upload`` and ``cancel`` take."""

    id: str


class _Spool:
    """A file that a program is handing over."""

    def __init__(self, name: str, size: int, path: Path) -> None:
        self.name, self.size, self.path = name, size, path
        self.held = 0
        self.digest = hashlib.sha256()


class ArtifactService:
    """Answers programs; lives as long as the daemon."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._spools: dict[str, _Spool] = {}
        self._cancelled: deque[str] = deque(maxlen=UPLOADS_MAX)

    async def run(self, client: Client) -> None:
        """Begin to serve; ends with the connection."""
        await client.subscribe(f"{SUBJECT}.>", cb=self._on_request)

    async def _on_request(self, message: Msg) -> None:
        if not message.reply:
            return
        headers = None
        try:
            answer = await self._answer(message.subject.split(".")[2:], message.data)
            payload = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        except (RefusedError, ArtifactError) as error:
            text = error.message if isinstance(error, RefusedError) else str(error)
            payload = msgspec.json.encode({"error": {"code": error.code, "message": text}})
            headers = {ERROR_HEADER: str(error.code)}
        except OSError as error:
            said = {"code": Code.STORAGE, "message": f"the agent's disk: {error.strerror}"}
            payload = msgspec.json.encode({"error": said})
            headers = {ERROR_HEADER: Code.STORAGE}
        try:
            await message._client.publish(message.reply, payload, headers=headers)
        except NatsError as error:
            log.warning("answer not sent", subject=message.subject, error=str(error))

    async def _answer(self, tokens: list[str], data: bytes) -> Any:
        if not await self._artifacts.ready(PREPARED_S_MAX):
            raise RefusedError(Code.BUSY, "the directory of artifacts is not ready")
        match tokens:
            case ["list"]:
                return self._artifacts.status()
            case ["get"]:
                return self._get(read(data, NameRequest).name)
            case ["read", digest, offset] if offset.isdigit():
                return await self._read(digest, int(offset))
            case ["done"]:
                return await self._done(read(data, NameRequest).name)
            case ["put"]:
                return await self._put(read(data, PutRequest))
            case ["write", number, offset] if offset.isdigit():
                return await self._write(number, int(offset), data)
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
            if job.digest.hex() == digest and job.state is State.READY and job.path is not None:
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

    async def _put(self, request: PutRequest) -> Any:
        _require_name(request.name)
        if not 0 <= request.bytes <= blobs.BYTES_MAX:
            raise RefusedError(Code.BAD_FIELD, f"{request.bytes} is no size of a file")
        waiting = sum(job.open for job in self._artifacts.uploads.values())
        if waiting >= UPLOADS_MAX:
            raise RefusedError(Code.BUSY, f"{waiting} files wait to be sent: cancel some")
        number = self._new_id()
        store = self._artifacts.store
        path = store.upload(number)
        await asyncio.to_thread(store.require_room, path, request.bytes, self._artifacts.wanted())
        await asyncio.to_thread(path.touch, 0o600)
        self._spools[number] = _Spool(request.name, request.bytes, path)
        if len(self._spools) > SPOOLS_MAX:
            oldest = self._spools.pop(next(iter(self._spools)))
            await asyncio.to_thread(oldest.path.unlink, missing_ok=True)
        return {"id": number}

    def _new_id(self) -> str:
        """Return an id that comes after all that wait: what is handed over later replaces."""
        waiting = [*self._artifacts.uploads, *self._spools]
        place = 1 + max((int(each[:8], 16) for each in waiting), default=0)
        return f"{place:08x}{secrets.token_hex(4)}"

    async def _write(self, number: str, offset: int, data: bytes) -> Any:
        spool = self._spool(number)
        if offset == spool.held:
            if offset + len(data) > spool.size:
                raise RefusedError(Code.BAD_FIELD, "more bytes than were announced")
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
            raise RefusedError(Code.NO_SUCH_POINT, "the agent was started again: hand it over anew")
        return spool


def _require_name(name: str) -> None:
    if not blobs.is_name(name):
        raise RefusedError(
            Code.BAD_FIELD, f"{name!r} is no name: letters, digits and . _ + - are, 128 at most"
        )


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
