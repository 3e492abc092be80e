"""Every error the agent raises on purpose, as one tree.

AgentError
├── ConfigError            a configuration file or value is not usable
├── HintedError            its remedy depends on where it was raised
│   ├── VehicleFilesError      the files of this vehicle cannot be made of an identity document
│   ├── EnrolmentFailedError   the hub did not enrol this vehicle: it refuses, or does not answer
│   ├── UnitsError             the systemd units cannot be started
│   ├── AppError               a local program cannot be added, changed or removed
│   └── LinkSwitchError        the link to the hub could not be switched
├── LedgerError            the ledger cannot be used
│   ├── LedgerInUseError       another agent runs on this ledger
│   ├── LedgerForeignError     the file is not this device's ledger
│   ├── LedgerNewerError       a newer backhaul wrote it
│   ├── LedgerOlderError       an older backhaul wrote it
│   ├── LedgerCorruptError     SQLite cannot read it
│   └── LedgerStorageError     one write or read failed; heals when the disk does
├── RefusedError           one publish was refused; nothing of it was kept
├── NotKnownError          a publish got no answer: it may or may not be kept
├── LoginError             a file to log in with is missing or damaged
├── NoAgentError           nobody listens for publishes on this server
│   └── NotLetInError          the leaf server refuses the login
├── ArtifactError          an artifact could not be fetched or sent; tried again
├── LeafReloadError        the leaf server does not read its configuration again
└── JetStreamError         the leaf server answered a request with an error
"""

from __future__ import annotations

import errno
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import Any

from backhaul_runtime.jetstream import STREAM_NOT_FOUND
from backhaul_runtime.jetstream_calls import RefusedByServer


class Code(StrEnum):
    """Why a publish was refused, as programs see it in ``{"error": {"code": ...}}``."""

    BAD_SUBJECT = "bad_subject"
    BAD_JSON = "bad_json"
    BAD_FIELD = "bad_field"
    BAD_VALUE = "bad_value"
    BAD_TIME = "bad_time"
    BAD_FRAME = "bad_frame"
    TOO_LARGE = "too_large"
    BUSY = "busy"
    LEDGER_FULL = "ledger_full"
    THINNED = "thinned"
    STORAGE = "storage"
    STOPPING = "stopping"
    NO_SUCH_NODE = "no_such_node"
    NO_SUCH_POINT = "no_such_point"
    EXISTS = "exists"
    AMBIGUOUS = "ambiguous"
    CYCLE = "cycle"
    SPENT = "tombstone_spent"
    CANCELLED = "cancelled"
    OUT_OF_STEP = "out_of_step"
    INTERNAL = "internal"


class AgentError(Exception):
    """Base of everything the agent raises on purpose."""

    hint: str = ""


class HintedError(AgentError):
    """Base of errors whose remedy, `hint`, only their place knows; the text holds it too."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"{problem} ({hint})")
        self.hint = hint


class ConfigError(AgentError):
    """A configuration file, or one value in it, is not usable.

    Fields: ``path`` the file, ``key`` the place in it (``ledger.bytes_max``, or empty for the
    whole file), ``problem`` what is wrong and what would be allowed.
    """

    def __init__(self, path: Path, key: str, problem: str) -> None:
        place = f"{path}: {key}" if key else str(path)
        super().__init__(f"{place}: {problem}")
        self.path = path
        self.key = key
        self.problem = problem


class VehicleFilesError(HintedError):
    """The files of this vehicle cannot be made or changed; all files are as they were."""


class EnrolmentFailedError(HintedError):
    """The hub did not enrol us; nothing is lost, and ``hint`` says how to go on.

    ``code``: the hub's reason (`backhaul_codec.protocol.enrolment`), ``foreign``, or empty: no answer.
    """

    def __init__(self, problem: str, *, hint: str, code: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.code = code


class UnitsError(HintedError):
    """The systemd units of this vehicle could not be enabled and started; its files are written."""


class AppError(HintedError):
    """A local program cannot be added, changed or removed as asked; nothing was."""


class LedgerError(AgentError):
    """The ledger at ``path`` cannot be used; ``hint`` names the operator's next step."""

    def __init__(self, path: Path, problem: str, *, hint: str = "") -> None:
        super().__init__(f"ledger {path}: {problem}" + (f" ({hint})" if hint else ""))
        self.path = path
        self.problem = problem
        self.hint = hint


class LedgerInUseError(LedgerError):
    """Another agent runs on this ledger; ``pid`` is its process, None where that is not known."""

    def __init__(self, path: Path, pid: int | None) -> None:
        who = f"another agent is using it (pid {pid})" if pid else "another agent is using it"
        super().__init__(
            path,
            who,
            hint="stop that one first: systemctl stop backhaul-agent; one agent for one ledger, "
            "and for each ledger.path",
        )
        self.pid = pid


class LedgerForeignError(LedgerError):
    """The file is no ledger, or the ledger of another device."""


class LedgerNewerError(LedgerError):
    """A newer backhaul wrote this ledger; this one would not understand it."""


class LedgerOlderError(LedgerError):
    """An older backhaul wrote this ledger, before its first release: its tables are others."""


class LedgerCorruptError(LedgerError):
    """SQLite cannot read the file, or its contents contradict each other. The daemon sets it aside."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            path,
            problem,
            hint="move the file away, as `run` does by itself: a new ledger gets a new epoch",
        )


class LedgerStorageError(LedgerError):
    """One operation failed (disk full, fsync failed, file locked) and was rolled back.

    Heals by itself: the ledger goes on as soon as the disk does. ``operation`` says which one.
    """

    def __init__(self, path: Path, operation: str, cause: Exception) -> None:
        super().__init__(path, f"{operation} failed: {cause}")
        self.operation = operation
        self.cause = cause

    @property
    def disk_full(self) -> bool:
        """Whether it failed because there is no space left."""
        return says_full(self.cause)

    @property
    def damaged(self) -> bool:
        """Whether it failed because the file was changed from outside: that does not heal."""
        return says_damaged(self.cause)


class RefusedError(AgentError):
    """One publish was refused, and nothing of it was kept.

    Fields: ``code`` for programs, ``message`` for people.
    """

    def __init__(self, code: Code | str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = str(code)
        self.message = message

    def as_json(self) -> dict[str, Any]:
        """Return it as programs are told."""
        return {"error": {"code": self.code, "message": self.message}}


class NotKnownError(AgentError):
    """No answer within ``waited_s`` seconds: the points may or may not be kept.

    Publishing them again may store them twice; not publishing them may lose them.
    """

    def __init__(self, subject: str, waited_s: float) -> None:
        super().__init__(f"{subject}: no answer within {waited_s:g} s, it may or may not be kept")
        self.subject = subject
        self.waited_s = waited_s


class ArtifactError(AgentError):
    """An artifact could not be fetched or sent this time; ``code`` is of `backhaul_codec.protocol.blobs`."""

    def __init__(self, problem: str, *, code: str) -> None:
        super().__init__(problem)
        self.code = code


class LeafReloadError(AgentError):
    """The leaf server was not told to read its configuration, or ``refused`` it."""

    def __init__(self, problem: str, *, refused: bool) -> None:
        super().__init__(f"the leaf server {problem}")
        self.refused = refused


class LinkSwitchError(HintedError):
    """The link to the hub could not be switched on or off; tried again every second."""


class LoginError(AgentError):
    """The file at ``path``, which the login to the leaf server needs, is missing or damaged."""

    hint = "it must be readable by this user, and be the file that enrolment wrote"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem} ({self.hint})")
        self.path = path
        self.problem = problem


class NoAgentError(AgentError):
    """Nobody answers on ``subject``: the agent is not running, or not connected."""

    hint = "is backhaul-agent running, and connected to this same server?"

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: nobody is listening ({self.hint})")
        self.subject = subject


class NotLetInError(NoAgentError):
    """The leaf server does not let this program in."""

    hint = "log in with the key that `backhaul-agent app add` made: --nkey, BACKHAUL_NKEY"

    def __init__(self, url: str, problem: str) -> None:
        AgentError.__init__(self, f"{url}: {problem} ({self.hint})")
        self.subject = url


class JetStreamError(AgentError, RefusedByServer):
    """The server answered ``request`` with an error."""

    def __init__(self, request: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{request}: {description} (code {code}, err_code {err_code})")
        self.request = request
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def no_such_stream(self) -> bool:
        """Whether it is the stream that is missing, not something in it."""
        return self.err_code == STREAM_NOT_FOUND


def damage_in(error: BaseException) -> str:
    """Return the text of an error, or of one in a group, about a damaged ledger; nothing where none does."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(damage_in, error.exceptions)), "")
    if isinstance(error, LedgerCorruptError) or (
        isinstance(error, LedgerStorageError) and error.damaged
    ):
        return error.problem
    # Closing a damaged file may fail, too.
    return str(error) if isinstance(error, sqlite3.Error) and says_damaged(error) else ""


def alone_in(error: Exception) -> Exception:
    """Return the only error of a group, however deep, if it was raised on purpose; else the error itself."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found if isinstance(found, AgentError) else error


def says_damaged(error: Exception) -> bool:
    """Tell whether an error of SQLite means that the file was changed from outside."""
    if isinstance(error, UnicodeDecodeError):
        return True  # what SQLite says of a table it cannot make out: its name is no text any more
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)


def says_full(error: Exception) -> bool:
    """Tell whether an error of SQLite or the system means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return bool(code == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE)
    return isinstance(error, sqlite3.OperationalError) and "disk is full" in str(error)
