"""Artifacts for programs on the vehicle.

    async with connect("nats://127.0.0.1:4222") as agent:
        files = ArtifactClient(agent)
        await files.fetch("maps.db", Path("/opt/maps.db"))     # there, whole and checked, on return
        number = await files.hand_over(Path("/var/log/can.log"))  # from now on the agent's duty

All methods raise RefusedError with a code and a sentence, NotKnownError, NoAgentError.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from nats.errors import Error as NatsError

from backhaul_agent.artifacts.jobs import FileState
from backhaul_agent.artifacts.service import ERROR_HEADER, LOCAL_PIECE_BYTES, SUBJECT
from backhaul_agent.client.client import Agent
from backhaul_agent.errors import Code, NoAgentError, NotKnownError, RefusedError
from backhaul_agent.files import move
from backhaul_codec.protocol import blobs

LOOK_S = 0.3
ABANDONED_S = 3600.0  # not written to for so long, a copy is nobody's any more
AWAY_S_MAX = 60.0  # how long an agent that is being started again is waited for
# What trying again does not heal by itself; all else the agent goes on with.
FINAL = frozenset({blobs.MISSING, blobs.BAD_NAME, blobs.QUOTA, Code.BAD_FIELD, Code.BUSY})
Progress = dict[str, Any]


class ArtifactClient:
    """The agent's operations on files, for a program."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def status(self) -> dict[str, Any]:
        """Return all slots, files being fetched, and files to be sent."""
        return await self._ask("list", {})

    async def fetch(
        self, name: str, target: Path, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> Progress:
        """Have the agent fetch a file, and put it in place once it is whole and its SHA-256 right.

        It takes as long as the link does. Broken off, it goes on from there when called again.

        Raises:
            RefusedError: there is no such file, or this vehicle may not have it. OSError: the target
                cannot be written.
        """
        while True:
            job = await self._ready(name, on_progress)
            # Its own: another program may be fetching the same file to the same place.
            partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            try:
                await asyncio.to_thread(_remove_abandoned, target, partial)
                await self._copy(job, partial)
                await asyncio.to_thread(move, partial, target)
            except RefusedError as error:
                if error.code != Code.NO_SUCH_POINT:
                    raise
                continue  # the agent was started again meanwhile
            finally:
                partial.unlink(missing_ok=True)
            await self._ask("done", {"name": name})
            return job

    async def _ready(self, name: str, on_progress: Callable[[Progress], None]) -> Progress:
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while True:
            try:
                job = await self._ask("get", {"name": name})
            except (NoAgentError, NotKnownError):
                if loop.time() - heard_s > AWAY_S_MAX:
                    raise
                await asyncio.sleep(LOOK_S)
                continue
            heard_s = loop.time()
            on_progress(job)
            if job["state"] == FileState.READY:
                return job
            if job["state"] == FileState.FAILED and job["code"] in FINAL:
                await self._ask("done", {"name": name})
                raise RefusedError(job["code"], job["failure"])
            await asyncio.sleep(LOOK_S)

    async def _copy(self, job: Progress, partial: Path) -> None:
        digest, held = hashlib.sha256(), 0
        with partial.open("wb") as file:
            while held < job["bytes"]:
                data = await self._bytes(f"read.{job['digest']}.{held}", b"")
                if not data:
                    break
                await asyncio.to_thread(file.write, data)
                digest.update(data)
                held += len(data)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        if digest.hexdigest() != job["digest"]:
            raise RefusedError(Code.STORAGE, "what the agent handed out has another SHA-256")

    async def hand_over(
        self,
        file: Path,
        name: str = "",
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> str:
        """Give the agent a copy of a file as it is now; return its number once that is durable.

        The agent sends it, over as many links as that takes. Raises: OSError.
        """
        with file.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            name = name or file.name
            number: str = (await self._ask("put", {"name": name, "bytes": size}))["id"]
            held = 0
            while held < size:
                data = await asyncio.to_thread(source.read, min(LOCAL_PIECE_BYTES, size - held))
                if not data:
                    raise RefusedError(Code.BAD_FIELD, f"{file} has become shorter meanwhile")
                await self._bytes(f"write.{number}.{held}", data)
                held += len(data)
                on_progress({"state": "handing over", "bytes": size, "moved": held})
        await self._ask("end", {"id": number})
        return number

    async def sent(
        self, number: str, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> None:
        """Return when a file that was handed over is stored at the hub.

        Raises:
            RefusedError: the hub does not take it as things are; the agent goes on trying.
        """
        while True:
            try:
                job = await self._ask("upload", {"id": number})
            except (NoAgentError, NotKnownError):
                await asyncio.sleep(LOOK_S)
                continue
            except RefusedError as error:
                if error.code == Code.NO_SUCH_POINT:
                    return  # an agent that was started again knows what waits, not what is done
                raise
            on_progress(job)
            if job["state"] == FileState.READY:
                return
            if job["state"] == FileState.FAILED and job["code"] in FINAL:
                raise RefusedError(job["code"], job["failure"])
            await asyncio.sleep(LOOK_S)

    async def cancel(self, number: str) -> None:
        """Give up sending a file."""
        await self._ask("cancel", {"id": number})

    async def _ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._agent.ask(f"{SUBJECT}.{what}", msgspec.json.encode(body))

    async def _bytes(self, what: str, data: bytes) -> bytes:
        subject = f"{SUBJECT}.{what}"
        try:
            message = await self._agent.nats.request(subject, data, timeout=10)
        except NatsError as error:
            raise NotKnownError(subject, 10) from error
        if ERROR_HEADER in (message.headers or {}):
            refused = msgspec.json.decode(message.data)["error"]
            raise RefusedError(refused["code"], refused["message"])
        return message.data


def _remove_abandoned(target: Path, partial: Path) -> None:
    """Remove copies whose programs were killed, by a power cut too; nobody goes on with them."""
    partial.touch()
    since_s = partial.stat().st_mtime - ABANDONED_S
    for each in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}.part"):
        with contextlib.suppress(OSError):  # gone, or another user's
            if each.stat().st_mtime < since_s:
                each.unlink()
