"""The lock of hub.db: one process at a time has it, by a file beside it.

The kernel takes the lock back when its holder ends, however that ends. It is no lock on hub.db itself: a process that
closes any descriptor of a file gives up its POSIX locks there, SQLite's too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from backhaul_hub.errors import RegistryError, RegistryHeldError

LOCK = "hub.db.lock"
ENDS_S_MAX = 10.0
"""For so long one waits for a control plane that ends, or for a command line that has hub.db just now."""
_LOOK_S = 0.05


@asynccontextmanager
async def alone_with(directory: Path, who: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
    """Hold the lock of the hub's directory: nobody else opens its hub.db meanwhile.

    Args:
        directory: the hub's.
        who: what the next one is told about the holder.
        wait_s: for how long (event loop's clock) another holder is waited for.

    Raises:
        RegistryHeldError: another one has it still, and who that is.
        RegistryError: the file of the lock cannot be opened.
    """
    until_s = asyncio.get_running_loop().time() + wait_s
    descriptor = _opened(directory)
    with os.fdopen(descriptor, "r+") as file:
        while not _locked(descriptor):
            if asyncio.get_running_loop().time() >= until_s:
                holder = (directory / LOCK).read_text().strip()
                raise RegistryHeldError(directory / "hub.db", holder or "another process")
            await asyncio.sleep(_LOOK_S)
        file.truncate()
        file.write(f"{who}, process {os.getpid()}\n")
        file.flush()
        yield


def _opened(directory: Path) -> int:
    """Return a descriptor of the lock's file. Raises: RegistryError."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RegistryError(f"{directory / LOCK}: {error.strerror}") from error
    if os.geteuid() == 0:  # the one whose hub it is opens it as well
        owner = directory.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
