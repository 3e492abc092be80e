"""Which artifacts this vehicle shall have, and how far each has got: a pure core, no I/O.

A slot is told what to hold by the point `artifact.<slot>` (node ``artifact``, type the slot), whose text
is ``NAME@SHA256``; what has become of it is the point `artifact.<slot>.state`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_codec.protocol import blobs

if TYPE_CHECKING:
    from backhaul_codec.state.merge import Heads

NODE, STATE_KEY = "artifact", "state"
SLOTS_MAX = 32
BACKOFF_S_MIN, BACKOFF_S_MAX = 5.0, 900.0
_SLOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_VERSION = re.compile(r"(.+)@(?:sha256:)?([0-9a-fA-F]{64})")


class FileState(StrEnum):
    """The state of a file; part of the report."""

    WAITING = "waiting"
    MOVING = "moving"
    CHECKING = "checking"
    READY = "ready"
    FAILED = "failed"  # and tried again
    EMPTY = "empty"  # a slot that shall hold nothing


@dataclass(slots=True)
class Job:
    """One file to fetch, or to send. ``digest`` empty: any version that stands under the name.

    ``path``: where it shall be, or is; of what a program asked for it is known once it was found.
    """

    name: str
    digest: bytes
    path: Path | None
    size: int = 0
    moved: int = 0
    state: FileState = FileState.WAITING
    error: str = ""
    code: str = ""
    tries: int = 0
    not_before_s: float = 0.0
    cancelled: bool = False

    @property
    def open(self) -> bool:
        """Whether there is something left to do."""
        return self.state is not FileState.READY and not self.cancelled

    def due(self, now_s: float) -> bool:
        """Return whether it may be worked on now."""
        return self.open and self.not_before_s <= now_s

    def failed(self, now_s: float, error: str, chance: Callable[[], float], code: str = "") -> None:
        """Take note of a failure; it is tried again, later each time."""
        self.state, self.error, self.code = FileState.FAILED, error, code
        wait_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self.tries, 10))
        self.tries += 1
        self.not_before_s = now_s + wait_s * (0.75 + chance() / 2)

    def ready(self) -> None:
        """Take note that it is done."""
        self.state, self.error, self.code, self.moved = FileState.READY, "", "", self.size

    def at_once(self) -> None:
        """Have it tried again now: something has changed that may have been the reason."""
        self.not_before_s = 0.0

    def report(self) -> dict[str, Any]:
        """Return the report for the hub: changes now and then only, so no progress."""
        moving = self.state in (FileState.WAITING, FileState.MOVING, FileState.CHECKING)
        said = {
            "state": "fetching" if moving else str(self.state),
            "name": self.name,
            "digest": self.digest.hex(),
            "bytes": self.size,
        }
        return said | {"error": self.error} if self.error else said

    def describe(self, now_s: float) -> dict[str, Any]:
        """Return all there is to say, for programs on the vehicle."""
        retry_s = max(0.0, self.not_before_s - now_s) if self.state is FileState.FAILED else 0.0
        return {
            "name": self.name,
            "digest": self.digest.hex(),
            "bytes": self.size,
            "moved": self.moved,
            "state": str(self.state),
            "failure": self.error,
            "code": self.code,
            "retry_s": round(retry_s, 1),
        }


def next_job(jobs: Iterable[Job], now_s: float) -> Job | None:
    """Return the job to work on, the one tried least; None where none is due."""
    return min((job for job in jobs if job.due(now_s)), key=lambda job: job.tries, default=None)


def next_due_s(jobs: Iterable[Job]) -> float | None:
    """Return when a job that failed is due again."""
    return min((job.not_before_s for job in jobs if job.open), default=None)


def wishes(heads: Heads, slots: Collection[str]) -> dict[str, Any]:
    """Return the value that each slot is told, of ``slots`` or, where that is empty, of any."""
    found: dict[str, Any] = {}
    for key, head in heads.of_node(NODE).items():
        told = not key.parent and not key.key and not head.deleted
        if told and is_slot(key.type) and (not slots or key.type in slots):
            found[key.type] = head.value
    return dict(sorted(found.items())[:SLOTS_MAX])


def is_slot(name: str) -> bool:
    """Return whether a slot may have this name: a file will."""
    return _SLOT.fullmatch(name) is not None


def read_version(value: object) -> tuple[str, bytes]:
    """Return name and digest of a version as a slot is told it.

    Raises:
        ValueError: it is none, with what is wrong.
    """
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not blobs.is_name(found[1]):
        raise ValueError(
            f"{str(value)[:150]!r} is no NAME@SHA256: backhaul-hub artifact ls shows what is one"
        )
    return found[1], bytes.fromhex(found[2])
