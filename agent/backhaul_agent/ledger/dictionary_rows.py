"""The ledger's rows of dictionaries: bytes that messages are packed against (docs/wire-format.md).

A row is written in the transaction that sends its dictionary to the hub, and stays while the hub may lack rows
of `messages` that refer to it, and mostly much longer: history on the vehicle reads them as well.
"""

from __future__ import annotations

import aiosqlite

from backhaul_agent.ledger.rows import DictionaryRow, Statement
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of

SCHEMA = """
CREATE TABLE dictionaries (
    digest BLOB PRIMARY KEY,
    body BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    used_ns INTEGER NOT NULL
) WITHOUT ROWID;
"""
# Where its message stands: the newest of that subject, so the search from the end is short.
_SENT = (
    "INSERT INTO dictionaries (digest, body, epoch, seq, used_ns) "
    "SELECT ?, ?, l.epoch, m.seq, ? FROM messages m JOIN lanes l ON l.id = m.lane "
    "WHERE m.subject = ? ORDER BY m.id DESC LIMIT 1 "
    "ON CONFLICT (digest) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, confirmed = 0"
)


async def load(db: aiosqlite.Connection) -> dict[bytes, DictionaryRow]:
    """Return all dictionaries by digest; damaged ones are left out: the hub has them still."""
    query = "SELECT digest, CAST(body AS BLOB), epoch, seq, confirmed, used_ns FROM dictionaries"
    found = {}
    for digest, body, epoch, seq, confirmed, used_ns in await db.execute_fetchall(query):
        numbers = all(isinstance(number, int) for number in (epoch, seq, used_ns))
        if numbers and digest == digest_of(body or b""):
            found[digest] = DictionaryRow(body, epoch, seq, confirmed == 1, used_ns)
    return found


def sent(body: bytes, now_ns: int) -> Statement:
    """Return the write of a dictionary whose message is in the same transaction."""
    digest = digest_of(body)
    return Statement(_SENT, (digest, body, now_ns, dictionary_subject(digest)))


def taken_in(row: DictionaryRow) -> Statement:
    """Return the write of a dictionary found in OUT; one that is known stays as it is."""
    query = "INSERT OR IGNORE INTO dictionaries VALUES (?, ?, ?, ?, ?, ?)"
    return Statement(query, (digest_of(row.body), *row))


def confirmed(digest: bytes) -> Statement:
    """Return the write of the hub's word that it holds a dictionary."""
    return Statement("UPDATE dictionaries SET confirmed = 1 WHERE digest = ?", (digest,))


def used(digest: bytes, now_ns: int) -> Statement:
    """Return the write of when a dictionary was used last."""
    return Statement("UPDATE dictionaries SET used_ns = ? WHERE digest = ?", (now_ns, digest))


def dropped(digest: bytes) -> Statement:
    """Return the write by which a dictionary is forgotten."""
    return Statement("DELETE FROM dictionaries WHERE digest = ?", (digest,))
