"""The place of hub.db in the journal, and the terms that it knows: two tables that only a hub with stand-bys has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS journal (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    created TEXT NOT NULL,
    seq INTEGER NOT NULL
) STRICT
""",
    """
CREATE TABLE IF NOT EXISTS journal_term (
    seq INTEGER PRIMARY KEY,
    machine TEXT NOT NULL,
    keys TEXT NOT NULL
) STRICT
""",
)
_GO_ON = "UPDATE journal SET seq = ?"


class JournalPlace(NamedTuple):
    """The journal that hub.db goes by, and its last entry that hub.db holds."""

    created: str
    """When the stream was made, in the server's words: another stream is another journal."""
    seq: int


class Term(NamedTuple):
    """The time for which one machine leads."""

    seq: int
    """Of the entry that began it."""
    machine: str
    keys: Mapping[str, str]
    """The public keys of the logins with which it acts, by account."""


async def read_place(registry: Registry) -> JournalPlace | None:
    """Return how far hub.db goes; None where it goes by no journal. Raises: RegistryError."""
    if not await registry.fetch("SELECT 1 FROM sqlite_master WHERE name = 'journal'"):
        return None
    rows = await registry.fetch("SELECT created, seq FROM journal")
    return JournalPlace(*rows[0]) if rows else None


async def begin(registry: Registry, created: str) -> None:
    """Have hub.db go by a journal that has no entry yet. Raises: RegistryError."""
    for table in _TABLES:
        await registry.fetch(table)
    await registry.write(
        [RowChange("INSERT OR REPLACE INTO journal VALUES (1, ?, 0)", [(created,)])]
    )


def go_on(seq: int) -> RowChange:
    """Return the statement by which hub.db holds the journal up to `seq`."""
    return RowChange(_GO_ON, [(seq,)])


def begun(term: Term) -> RowChange:
    """Return the statement that records a term."""
    row = (term.seq, term.machine, json.dumps(dict(term.keys)))
    return RowChange("INSERT OR REPLACE INTO journal_term VALUES (?, ?, ?)", [row])


def ended(before_seq: int) -> RowChange:
    """Return the statement that forgets the terms before one: nobody can act by their logins."""
    return RowChange("DELETE FROM journal_term WHERE seq < ?", [(before_seq,)])


async def read_terms(registry: Registry) -> list[Term]:
    """Return the present term, and those whose logins may not be shut out yet, in order. Raises: RegistryError."""
    rows = await registry.fetch("SELECT seq, machine, keys FROM journal_term ORDER BY seq")
    return [Term(seq, machine, json.loads(keys)) for seq, machine, keys in rows]
