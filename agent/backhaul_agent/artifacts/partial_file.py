"""An artifact that is not whole yet: appended to, checked, and only then given its name.

Beside the part stands what is known of it: how much is on disk for certain, and in which run of the
machine it was written. What a killed agent wrote is all there (the kernel has it); after a power cut
only what was synced counts. The SHA-256 is taken as pieces come, and from the file after a restart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from backhaul_agent.errors import ArtifactError
from backhaul_agent.files import move, write_whole
from backhaul_codec.strict.json import JsonError, read_typed

SYNC_BYTES, SYNC_S = 128 * 1024, 2.0  # a sync after so much, if the last one is so long ago
_BLOCK_BYTES = 1 << 20


class _Known(msgspec.Struct):
    boot: str
    synced: int


def open_part(path: Path) -> BinaryIO:
    """Open a part for reading and writing, without buffers; it is made where it is not there."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)


class Part:
    """The first ``held`` bytes of a version. Blocking: call it from a thread.

    All methods raise OSError; after one, close it and open it again.
    """

    def __init__(self, path: Path, size: int, boot: str, file: BinaryIO) -> None:
        self.path = path
        self.held = 0
        self._known = path.with_suffix(".json")
        self._size = size
        self._boot = boot
        self._file = file
        self._digest = hashlib.sha256()
        self._synced = 0
        self._synced_s = 0.0

    @classmethod
    def open(
        cls, path: Path, size: int, boot: str, opener: Callable[[Path], BinaryIO] = open_part
    ) -> Self:
        """Begin a part, or go on with one."""
        part = cls(path, size, boot, opener(path))
        try:
            part._resume()
        except BaseException:
            part.close()
            raise
        return part

    def _resume(self) -> None:
        trusted = 0
        with contextlib.suppress(FileNotFoundError, JsonError):
            known = read_typed(self._known.read_bytes(), _Known)
            trusted = self._size if known.boot == self._boot else known.synced
        if not trusted:
            self._note(0)
        while block := self._file.read(min(_BLOCK_BYTES, trusted - self.held)):
            self._digest.update(block)
            self.held += len(block)
        self._file.truncate(self.held)
        self._synced = self.held

    def append(self, data: bytes, now_s: float) -> None:
        """Add the next bytes."""
        self._file.seek(self.held)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        self._digest.update(data)
        self.held += len(data)
        if self.held - self._synced >= SYNC_BYTES and now_s - self._synced_s >= SYNC_S:
            self.sync()
            self._synced_s = now_s

    def sync(self) -> None:
        """See that all bytes so far survive a power cut."""
        os.fsync(self._file.fileno())
        self._note(self.held)

    def finish(self, digest: bytes, target: Path) -> None:
        """Check the whole and move it into place.

        Raises:
            ArtifactError: it is another file than it should be; the part is removed.
        """
        if self._digest.digest() != digest:
            self.drop()
            raise ArtifactError(
                "the SHA-256 of what came is wrong; it is fetched anew", code="digest"
            )
        os.fsync(self._file.fileno())
        self.close()
        move(self.path, target)
        self._known.unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove it."""
        self.close()
        drop_part(self.path)

    def close(self) -> None:
        """Let go of the file; it can be opened again."""
        self._file.close()

    def _note(self, synced: int) -> None:
        write_whole(self._known, msgspec.json.encode(_Known(self._boot, synced)))
        self._synced = synced


def drop_part(path: Path) -> None:
    """Remove a part and its record. Raises: OSError."""
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def has_digest(path: Path, digest: bytes) -> bool:
    """Return whether a file is there and this one. Raises: OSError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest() == digest
    except FileNotFoundError:
        return False
