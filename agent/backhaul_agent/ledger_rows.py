"""What goes into the ledger and comes out of it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

STAGED = "staged"  # stands where a lane's name would, for a row that has no seq yet


class Outgoing(NamedTuple):
    """A message to be committed: its envelope is stamped with epoch and seq on the way in."""

    lane: str
    subject: str
    body: bytes


class Staged(NamedTuple):
    """Acknowledged points of one node that no frame holds yet (``body``: see framer.pack)."""

    node: str
    points: int
    body: bytes


class Quarantine(NamedTuple):
    """A row to set aside: a message of a lane, or (``lane`` STAGED) a staged row by its id."""

    lane: str
    seq: int
    reason: str


class Distance(NamedTuple):
    """How far at most the sequences of a lane's stream have been ahead of the seqs in it.

    ``created`` says which stream: one that was made anew counts its sequences anew.
    """

    created: str = ""
    offset: int = 0


@dataclass(slots=True)
class Changes:
    """What one transaction writes. Messages of a lane get consecutive seqs in list order.

    ``meta``: facts by name, each replaces what stood there.
    """

    messages: list[Outgoing] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)
    unstage: list[int] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    distances: dict[str, Distance] = field(default_factory=dict)
    quarantine: list[Quarantine] = field(default_factory=list)
    meta: dict[str, str | int] = field(default_factory=dict)
    time_ns: int = 0

    def __bool__(self) -> bool:
        return bool(
            self.messages
            or self.staged
            or self.unstage
            or self.watermarks
            or self.distances
            or self.quarantine
            or self.meta
        )


class StagedRow(NamedTuple):
    """A staged row as read back; ``intact`` is False where its checksum does not fit."""

    id: int
    node: str
    points: int
    body: bytes
    intact: bool


class Row(NamedTuple):
    """A message as read back for appending."""

    seq: int
    subject: str
    body: bytes
