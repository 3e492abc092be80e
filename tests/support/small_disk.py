"""A file system of a few megabytes that really fills up: a tmpfs, where mounting is allowed."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 4096


class SmallDisk:
    """A mounted file system, and a file of somebody else's that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hog = path / "somebody-elses-log"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Take everything that is free, but ``leave`` bytes."""
        with self._hog.open("ab") as hog:
            while self.free_bytes > leave:
                try:
                    hog.write(b"\xff" * min(65536, max(BLOCK, self.free_bytes - leave)))
                    hog.flush()
                except OSError:
                    return

    def drain(self) -> None:
        """Give the space back."""
        self._hog.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Mount file systems of so many bytes; skips where mounting is not allowed."""
    mounted: list[Path] = []

    def mount(size: int) -> SmallDisk:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(f"no file system of its own for this test: {error}")
        if done.returncode:
            pytest.skip(f"no file system of its own for this test: {done.stderr.strip()}")
        mounted.append(path)
        return SmallDisk(path)

    try:
        yield mount
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)
