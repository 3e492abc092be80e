"""Files of a hub directory: written whole, for their owner alone, by one command at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold the lock on the files of a hub directory: one command at a time writes them, and a backup reads them whole."""
    descriptor = os.open(directory / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def private_directory(path: Path) -> None:
    """Make a directory and those above it that are missing, each for its owner alone. Raises: OSError.

    `mkdir(parents=True, mode=...)` gives the mode to the last one alone.
    """
    for each in reversed((path, *path.parents)):
        each.mkdir(exist_ok=True, mode=0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all, also through a power cut."""
    # Of this process: a command and the control plane may write the same document at once.
    partial = path.with_name(f"{path.name}.{os.getpid()}.new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Have the disk keep a directory's names: a new one in it is lost by a power cut before that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
