"""A file beside the ledger that holds space on the disk for the moment when there is none.

SQLite needs some space even to delete: the log of the transaction, and pages of the log that are
not in the file yet. When the disk is full the reserve is given up, so that room can be made in the
ledger; when there is space again it is taken back.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

# There must be this much beyond a new reserve before the disk counts as usable again.
SPARE_BYTES = 1 << 20


class Disk(Protocol):
    """The questions to the file system; a seam where tests put a full one."""

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that may still be written to the file system of an existing ``path``."""
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Create a file whose blocks are really there. Raises: OSError."""
        ...


class FileSystem:
    """The machine's own file systems."""

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that an ordinary user may still write."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def allocate(self, path: Path, size: int) -> None:
        """Create the file with `posix_fallocate`: where that is not known, zeros are written."""
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
        finally:
            os.close(handle)


class Reserve:
    """The reserve of the ledger at ``ledger``. ``size`` 0: there is none, and nothing fails."""

    def __init__(self, ledger: Path, size: int, disk: Disk | None = None) -> None:
        self.path = ledger.with_name(ledger.name + ".reserve")
        self.size = size
        self._disk = disk or FileSystem()

    @property
    def place(self) -> str:
        """Name the disk, for people."""
        return f"the disk of {self.path.parent}"

    @property
    def held(self) -> bool:
        """Whether the space is held now."""
        try:
            return self.path.stat().st_size >= self.size
        except OSError:
            return False

    @property
    def short(self) -> bool:
        """Whether the disk has less left than the reserve would take, or is not to be seen."""
        return self._free() < max(self.size, SPARE_BYTES)

    def release(self) -> bool:
        """Give the space up; return whether there was any."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True

    def take(self) -> bool:
        """Take the space, if that leaves some to work with; return whether it is held."""
        if not self.size or self.held:
            return self.held or not self.short
        if self._free() < 2 * self.size + SPARE_BYTES:
            return False
        try:
            self._disk.allocate(self.path, self.size)
        except OSError:
            self.release()
            return False
        return True

    def _free(self) -> int:
        try:
            return self._disk.free_bytes(self.path.parent)
        except OSError:
            return 0
