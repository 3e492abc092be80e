"""One agent for one ledger: a lock that the process holds for its life.

Two agents on one ledger would each give out seqs that the other gave out. So the lock is taken before
anything else is opened, made or changed. It is `flock` on a file of its own beside the ledger:

- SQLite's own locks are per process and per transaction, and closing any descriptor of the ledger drops them
- the ledger itself may be set aside as damaged while the agent runs, and a new one takes its name
- the kernel lets go of it when the process is gone, however it ended; the file stays, and means nothing by
  itself
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from backhaul_agent.errors import LedgerInUseError, LedgerStorageError, says_full

if TYPE_CHECKING:
    from backhaul_agent.ledger.disk_reserve import Reserve

_PID_CHARACTERS = 10
_TRIES = 3


class LedgerLock:
    """The lock of the ledger at `ledger`; held from `__enter__` to `__exit__`, or the process's end.

    `ledger.disk_reserve`: given up where the disk is too full for the file. `pid`: who the file says holds it, for
    the next one's error message.
    """

    def __init__(
        self, ledger: Path, reserve: Reserve | None = None, *, pid: int | None = None
    ) -> None:
        self.path = ledger.with_name(ledger.name + ".lock")
        self._ledger = ledger
        self._reserve = reserve
        self._pid = os.getpid() if pid is None else pid
        self._handle = -1

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            LedgerInUseError: another process has it.
            LedgerStorageError: the file cannot be made, or this file system locks nothing.
        """
        try:
            try:
                self._handle = self._taken()
            except OSError as error:
                if not (says_full(error) and self._reserve and self._reserve.release()):
                    raise
                self._handle = self._taken()
        except OSError as error:
            raise LedgerStorageError(self._ledger, "locking", error) from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Let go of it. The file stays: another may have opened it already."""
        os.close(self._handle)

    @property
    def stands(self) -> bool:
        """Whether the file is still the one that is locked: somebody may have removed it."""
        try:
            found, held = self.path.stat(), os.fstat(self._handle)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def renew(self) -> None:
        """Lock the file anew where somebody has removed it.

        Raises:
            LedgerInUseError: another agent has come meanwhile.
        """
        if self.stands:
            return
        try:
            fresh = self._taken()
        except OSError:
            return  # the directory is gone, or full: tried again at the next look
        os.close(self._handle)
        self._handle = fresh

    def _taken(self) -> int:
        for _ in range(_TRIES):
            # Not inherited: a command's child must not hold the lock after us.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                handle = os.open(self.path, flags | os.O_EXCL, 0o600)
                self._hand_to_owner(handle)
            except FileExistsError:
                handle = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.path.stat().st_ino == os.fstat(handle).st_ino:
                    self._sign(handle)
                    return handle
            except BlockingIOError:
                pid = _signed(handle)
                os.close(handle)
                raise LedgerInUseError(self._ledger, pid) from None
            except FileNotFoundError:
                pass
            except OSError:
                os.close(handle)
                raise
            os.close(handle)  # removed between opening and locking: it locks nothing
        raise LedgerInUseError(self._ledger, None)

    def _hand_to_owner(self, handle: int) -> None:
        """Give a new file to the owner of the directory, as SQLite does with its own.

        Else an agent could not open what a command of root's has made.
        """
        if os.geteuid() == 0:
            with suppress(OSError):
                found = self.path.parent.stat()
                os.fchown(handle, found.st_uid, found.st_gid)

    def _sign(self, handle: int) -> None:
        """Write the holder's name, over the old one: with the disk full nothing new can be had."""
        try:
            os.pwrite(handle, f"{self._pid:<{_PID_CHARACTERS}}\n".encode(), 0)
        except OSError:
            return


def _signed(handle: int) -> int | None:
    """Return the pid that a lock file names, None where it names none."""
    said = os.pread(handle, _PID_CHARACTERS + 1, 0).strip()
    return int(said) if said.isdigit() and len(said) <= _PID_CHARACTERS else None
