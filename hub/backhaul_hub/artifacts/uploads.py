"""Files from devices: each until it is whole and checked, then an object of the store.

Objects are named `uploads/<device>/<name>`, which no device can read. A device's space is bounded: what
it has in the store and what is half here together stay below `[artifacts] upload_bytes_max`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import structlog

from backhaul_codec.protocol import blobs
from backhaul_hub.artifacts.object_store import Artifact, Objects, file_digest
from backhaul_hub.config import ArtifactsSection as Limits
from backhaul_hub.errors import ArtifactError, HubError
from backhaul_hub.private_files import private_directory
from backhaul_runtime.clock import Clock

PREFIX = "uploads/"
PARTS_MAX = 4  # half here, of one device: the one it sends now, and others that it went away from
STORING_MAX = 4  # at once
# Only this process adds uploads; that an operator removed some may be noticed a little later.
CATALOGUE_S_MAX = 30.0
# Whatever else may have come to stand there in a path's place is not written through.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
log = structlog.get_logger(__name__)


class UploadError(HubError):
    """An upload cannot go on; ``code`` is for the device, one of `backhaul_codec.protocol.blobs`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Upload:
    """A file on its way: the first ``held`` bytes are at ``path``."""

    device: str
    name: str
    digest: bytes
    size: int
    path: Path
    held: int = 0
    done: bool = False


def object_name(device: str, name: str) -> str:
    """Return under which name a device's file stands in the store."""
    return f"{PREFIX}{device}/{name}"


class Uploads:
    """Takes in files; the directory is the control plane's own.

    All methods raise UploadError for what the device is told, other HubErrors where the hub itself
    is in trouble. The questions of one device come one after another.
    """

    def __init__(self, directory: Path, objects: Objects, limits: Limits, clock: Clock) -> None:
        self.stored = 0
        self._directory = directory
        self._objects = objects
        self._limits = limits
        self._clock = clock
        self._storing = asyncio.Semaphore(STORING_MAX)
        self._catalogue: dict[str, dict[str, int]] = {}
        self._catalogue_s: float | None = None

    async def offer(self, device: str, name: str, digest: bytes, size: int) -> Upload:
        """Begin an upload or go on with it; a complete one is done."""
        if not blobs.is_name(name) or len(digest) != blobs.DIGEST_BYTES:
            raise UploadError(blobs.BAD_NAME, f"{name!r} is no name for an upload")
        upload = Upload(device, name, digest, size, self._directory / device / digest.hex())
        there = await self._objects.info(object_name(device, name))
        if there is not None and there.digest == digest:
            upload.held, upload.done = size, True
            return upload
        await self._make_room(upload)
        upload.held = await asyncio.to_thread(_prepare, upload)
        if upload.held == size:
            await self._store(upload)
        return upload

    async def write(self, upload: Upload, offset: int, data: bytes) -> None:
        """Take in a piece; one out of turn is passed over, the device hears how far it is."""
        if offset != upload.held or upload.done or not data:
            return
        if offset + len(data) > upload.size:
            raise UploadError(blobs.QUOTA, f"{upload.name} has more bytes than were offered")
        try:
            await asyncio.to_thread(_append, upload.path, offset, data)
        except OSError as error:
            raise UploadError(blobs.FULL, f"the hub cannot write: {error.strerror}") from error
        upload.held += len(data)
        if upload.held == upload.size:
            await self._store(upload)

    async def _make_room(self, upload: Upload) -> None:
        limits, device = self._limits, upload.device
        others = dict((await self._known()).get(device, {}))
        others.pop(upload.name, None)  # to be replaced
        if len(others) >= limits.uploads_max:
            raise UploadError(
                blobs.QUOTA,
                f"{device} has {len(others)} uploads at the hub, {limits.uploads_max} are allowed:"
                " an operator must remove some",
            )
        used = sum(others.values())
        if used + upload.size > limits.upload_bytes_max:
            raise UploadError(
                blobs.QUOTA,
                f"{upload.size} bytes on top of {used} exceed the {limits.upload_bytes_max} that"
                " a device may have at the hub",
            )
        spare = limits.upload_bytes_max - used - upload.size
        await asyncio.to_thread(_drop_others, upload.path, spare)

    async def _known(self) -> dict[str, dict[str, int]]:
        now_s = self._clock.monotonic_s()
        if self._catalogue_s is None or now_s - self._catalogue_s > CATALOGUE_S_MAX:
            self._catalogue = {}
            for artifact in await self._objects.list():
                self._note(artifact)
            self._catalogue_s = now_s
        return self._catalogue

    def _note(self, artifact: Artifact) -> None:
        if artifact.name.startswith(PREFIX):
            device, _, name = artifact.name.removeprefix(PREFIX).partition("/")
            self._catalogue.setdefault(device, {})[name] = artifact.size

    async def _store(self, upload: Upload) -> None:
        async with self._storing:
            if await asyncio.to_thread(file_digest, upload.path) != upload.digest:
                await asyncio.to_thread(upload.path.unlink)
                upload.held = 0
                raise UploadError(
                    blobs.DIGEST, f"the SHA-256 of {upload.name} is wrong: it must be sent anew"
                )
            try:
                with upload.path.open("rb", buffering=0) as file:
                    name = object_name(upload.device, upload.name)
                    self._note(await self._objects.put(name, file))
            except ArtifactError as error:
                raise UploadError(blobs.FULL, error.message) from error
        upload.done = True
        self.stored += 1
        await asyncio.to_thread(upload.path.unlink)
        log.info("upload_stored", device=upload.device, name=upload.name, bytes=upload.size)


def _prepare(upload: Upload) -> int:
    """Return how much is here already."""
    try:
        private_directory(upload.path.parent)
        with os.fdopen(os.open(upload.path, _APPEND, 0o600), "ab") as file:
            held = file.tell()
            if held > upload.size:
                file.truncate(0)
                return 0
            return held
    except OSError as error:
        raise UploadError(blobs.FULL, f"the hub cannot write: {error.strerror}") from error


def _append(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _drop_others(path: Path, spare: int) -> None:
    """Remove other partial files of the device, the oldest first, until there is room."""
    with contextlib.suppress(FileNotFoundError):
        others = sorted(
            ((it.stat().st_mtime_ns, it) for it in path.parent.iterdir() if it != path),
            reverse=True,
        )
        for number, (_, other) in enumerate(others, 1):
            spare -= other.stat().st_size
            if number >= PARTS_MAX or spare < 0:
                other.unlink()
