"""Small file systems that really fill up, for the stores that a run will want to fill (tmpfs).

Mounting takes root. Where it is not allowed there are none; faults that fill one are passed over
then, and counted: see `World.passed_over`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.rig.parts import RigError, run_to_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

ROOM_BYTES = 64 << 30
"""How large one is while it is not full: servers set some of it aside. Only what is stored takes memory."""
_BLOCK_BYTES = 4096
_TRIALS_MAX = 16


class Disk:
    """A file system of its own. Full means that it is made as small as what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def fill(self) -> None:
        """Leave no room. What others give back later is free until this is called again.

        Raises:
            RigError: what it holds grew each time that it was about to be made as small as that.
        """
        for trial in range(_TRIALS_MAX):
            found = os.statvfs(self.path)
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                # What is about to be written is not known: twice as much each time, up to 128 MiB.
                await self._resize(used_bytes + (_BLOCK_BYTES << trial) - _BLOCK_BYTES)
            except RigError:
                continue
            return
        raise RigError(f"{self.path} cannot be made full")

    async def drain(self) -> None:
        """Give the room back."""
        await self._resize(ROOM_BYTES)

    async def _resize(self, size_bytes: int) -> None:
        size = max(size_bytes, _BLOCK_BYTES)  # 0 would be no limit at all
        await run_to_end(["mount", "-o", f"remount,size={size}", str(self.path)])


@asynccontextmanager
async def mounted(paths: Iterable[Path]) -> AsyncIterator[dict[Path, Disk]]:
    """Mount a file system at each path, which is made, or whose content goes into it; none where that is not allowed.

    What they hold stays behind, to be looked at.
    """
    disks: dict[Path, Disk] = {}
    try:
        for path in sorted(paths):  # one that holds another first
            content = path.with_name(f"{path.name}-before")
            if path.exists():
                path.rename(content)
            path.mkdir(mode=0o700, parents=True)
            options = f"size={ROOM_BYTES},mode=0700"
            try:
                await run_to_end(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)])
            except (RigError, OSError):
                await asyncio.to_thread(_into, path, content)
                break
            disks[path] = Disk(path)
            await asyncio.to_thread(_into, path, content)
        yield disks
    finally:
        for disk in disks.values():
            await disk.drain()  # one in another is about to be copied into it
        for path in reversed(disks):
            await _unmount(path)


def _into(path: Path, content: Path) -> None:
    if content.exists():
        shutil.copytree(content, path, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(content)


async def _unmount(path: Path) -> None:
    copy = path.with_name(f"{path.name}-copy")
    await asyncio.to_thread(shutil.copytree, path, copy, symlinks=True)
    await run_to_end(["umount", "-l", str(path)])
    path.rmdir()
    copy.replace(path)
