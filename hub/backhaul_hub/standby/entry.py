"""The entries of the journal as bytes, and the messages that carry them. Pure.

Each entry is one transaction of hub.db, or a word of the machine that leads: that it leads from here on, that it
is alive, that it leaves. One that is larger than a message is stored as several, in one atomic batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from backhaul_hub.db.change import RowChange

PART_BYTES = 512 << 10
"""A message of the journal holds so much at most: any nats-server takes it."""


class JournalError(ValueError):
    """A message of the journal is none that this program knows."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry."""

    kind: Literal["rows", "lead", "beat", "leave"]
    nonce: str
    """Of this entry alone: by it the writer knows its own where it was in doubt."""
    machine: str
    """Who wrote it."""
    schema: int = 0
    """Of rows and lead: the schema of the writer's hub.db."""
    changes: list[tuple[str, list[tuple[Any, ...]]]] = []
    """Of rows: statements, and the rows of values of each."""
    changed: int = 0
    """Of rows: how many rows they changed at the leader, as they must at whoever follows."""
    keys: dict[str, str] = {}
    """Of lead: the public keys of the logins with which the machine acts from here on, by account."""
    to: str = ""
    """Of leave: the machine that is to lead; empty: any."""


class JournalEntry(NamedTuple):
    """A whole entry, and the last sequence of its messages."""

    seq: int
    entry: Entry


class _Part(msgspec.Struct, frozen=True, array_like=True):
    nonce: str
    number: int
    of: int
    content: bytes


_parts = msgspec.msgpack.Decoder(_Part)
_entries = msgspec.msgpack.Decoder(Entry)


def rows_of(changes: Sequence[RowChange]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Return changes as an entry has them."""
    return [(change.statement, [tuple(row) for row in change.rows]) for change in changes]


def messages_of(entry: Entry, part_bytes: int = PART_BYTES) -> list[bytes]:
    """Return an entry as the bodies of one or more messages. Raises: TypeError: a value is none of SQLite's."""
    whole = msgspec.msgpack.encode(entry, enc_hook=_plain)
    cut = [whole[at : at + part_bytes] for at in range(0, len(whole), part_bytes)]
    return [
        msgspec.msgpack.encode(_Part(entry.nonce, number, len(cut), content))
        for number, content in enumerate(cut, 1)
    ]


def nonce_of(body: bytes) -> str:
    """Return the nonce of the entry that a message carries, or a part of; "" where it is none."""
    try:
        return _parts.decode(body).nonce
    except msgspec.DecodeError:
        return ""


class Assembler:
    """Makes entries of the journal's messages, read in their order.

    Args:
        position: the last message that is not to come again.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        """The last message taken in."""
        self._parts: list[_Part] = []

    def take(self, seq: int, body: bytes) -> Iterator[JournalEntry]:
        """Take in the next message, which has sequence `seq`; yield the entry that it completes.

        Raises:
            JournalError: it is none, or does not go on from the one before.
        """
        if seq != self.position + 1:
            raise JournalError(
                f"message {self.position + 1} of the journal is gone, {seq} comes next"
            )
        try:
            part = _parts.decode(body)
            number = self._parts[-1].number + 1 if self._parts else 1
            nonce = self._parts[0].nonce if self._parts else part.nonce
            if (part.number, part.nonce) != (number, nonce):
                raise JournalError(f"message {seq} of the journal is no part of the one before")
            self._parts.append(part)
            self.position = seq
            if part.number < part.of:
                return
            whole, self._parts = b"".join(each.content for each in self._parts), []
            entry = _entries.decode(whole)
        except msgspec.DecodeError as error:
            raise JournalError(f"message {seq} of the journal cannot be read: {error}") from error
        yield JournalEntry(seq, entry)


def _plain(value: Any) -> Any:
    """Return a value of a kind derived from one of SQLite's as SQLite stores it."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__bytes__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is no value of SQLite's")
