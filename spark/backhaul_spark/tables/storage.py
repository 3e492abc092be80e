"""Name why files of the tables could not be written, and the command that mends it."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from backhaul_spark.errors import BackhaulSparkError, JobFailedError, StorageError

# As Rust, Python and Arrow write the number of an error of the system.
_NUMBER = re.compile(r"\(os error (\d+)\)|\bcode: (\d+)|\[[Ee]rrno (\d+)\]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_READ_ONLY = (errno.EROFS,)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def storage_error(error: Exception, root: str) -> StorageError | None:
    """Return an error of the storage under a table root, in one line; None for any other error.

    It is as delta-rs, Arrow, Python or a job of Spark raised it.
    """
    if isinstance(error, BackhaulSparkError) and not isinstance(error, JobFailedError):
        return None
    number = next(filter(None, map(_number, _chain(error))), 0)
    said = f"{root} cannot be written: {os.strerror(number)}" if number else ""
    if number in _READ_ONLY:
        mount = shlex.quote(str(_mount_of(Path(root))))
        return StorageError(f"{said}; mend it with: mount -o remount,rw {mount}")
    if number in _FORBIDDEN:
        return StorageError(f"{said}; mend it with: chown -R {os.geteuid()} {shlex.quote(root)}")
    if number in _FULL:
        days = f"backhaul-spark maintain --table-root {shlex.quote(root)} --points-days DAYS"
        return StorageError(f"{said}; make room there, then run again. Old points go with: {days}")
    if type(error).__module__.partition(".")[0] in ("deltalake", "_internal"):
        return StorageError(f"{root}: {_one_line(str(error))}")
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _number(error: BaseException) -> int:
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _NUMBER.search(str(error))
    return int(next(filter(None, found.groups()))) if found else 0


def _one_line(text: str) -> str:
    """Return a text of several lines, each below its cause, as one."""
    lines = (line.strip(" ↳\t") for line in _COLOURS.sub("", text).splitlines())
    return ": ".join(filter(None, lines))


def _mount_of(path: Path) -> Path:
    while not os.path.ismount(path) and path != path.parent:
        path = path.parent
    return path
