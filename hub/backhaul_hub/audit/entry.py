"""Entries of the audit log, and the chain that seals them. Pure.

A message of the stream is a batch of entries, and names the SHA-256 of the message before it. So nobody takes an entry
out, changes one or puts one in between without all later messages saying so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from backhaul_codec.strict.json import JsonError, Reader

NONE = "0" * 64
"""The first message has this in the place of its predecessor's hash."""
OPERATOR = "operator"
"""The asker, where an operator used a command line; the user's name on that machine follows."""


@dataclass(frozen=True, slots=True)
class AuditedAct:
    """One act, before names are replaced."""

    who: str
    what: str
    about: str = ""
    detail: str = ""
    refused: str = ""
    person: bool = False
    """Whether `about` is the name of a person."""


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act."""

    at_ns: int
    """By the hub's clock, since the Unix epoch."""
    who: str
    """A pseudonym; hub.db knows whose, until that name is erased."""
    what: str
    """The service that was asked, or what else was done."""
    about: str = ""
    """The device, group or alert that it was about; of a person a pseudonym."""
    detail: str = ""
    refused: str = ""
    """Why it was not done; empty: it was."""


class AuditMessage(msgspec.Struct, frozen=True):
    """One message of the stream."""

    before: str
    entries: list[AuditEntry]


_BATCH = Reader(AuditMessage)


def written(before: str, entries: Sequence[AuditEntry]) -> bytes:
    """Return a message."""
    return msgspec.json.encode(AuditMessage(before, list(entries)))


def digest(body: bytes) -> str:
    """Return the hash by which the message after this one names it."""
    return hashlib.sha256(body).hexdigest()


Breach = tuple[int, Literal["missing", "changed", "unreadable"]]
"""From which sequence on the chain is not what was written."""


class AuditChain:
    """Follows the chain message by message."""

    def __init__(self) -> None:
        self.seq = 0
        self.digest = NONE
        self.breaches: list[Breach] = []

    def take(self, seq: int, body: bytes) -> list[AuditEntry]:
        """Take in the stream's next message; return its entries, none if it cannot be read."""
        batch = None
        try:
            batch = _BATCH.read(body)
        except JsonError:
            self.breaches.append((seq, "unreadable"))
        if seq != self.seq + 1:
            self.breaches.append((self.seq + 1, "missing"))
        elif batch is not None and batch.before != self.digest:
            self.breaches.append((seq, "changed"))
        self.seq, self.digest = seq, digest(body)
        return batch.entries if batch is not None else []
