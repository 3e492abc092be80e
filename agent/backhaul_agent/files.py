"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file in one step that survives a power cut, from the start with exactly this mode.

    Raises: OSError.
    """
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or 0o666)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)  # whatever the umask makes of it
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    move(partial, path)


def move(source: Path, target: Path) -> None:
    """Rename a file on disk, in place of any other of that name; survives a power cut.

    Raises: OSError.
    """
    source.replace(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
