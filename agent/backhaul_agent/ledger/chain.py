"""The chains of a ledger's lanes: each message carries the hash of the one before it.

A message gets its link when its bytes are final: in the commit that writes it, or, where its stamps wait
for the time, in the commit that puts them right. Until then it stands in the ledger in version 1, and
nothing of its lane leaves from there on (`Lane.ready_seq`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import aiosqlite

from backhaul_codec import CodecError, chain, hash_of, peek
from backhaul_codec.wire.envelope import HASH_BYTES, NO_LINK

SCHEMA = """
CREATE TABLE chains (
    lane INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
);
"""
LINK_ROWS = 512  # linked at a time


class ChainEnd(NamedTuple):
    """Up to which seq a lane's messages are linked, and the hash of the last of them."""

    seq: int = 0
    hash: bytes = NO_LINK


UNCHAINED = ChainEnd()
"""Of a lane that has no message yet."""


class Chained(Protocol):
    """A lane, as far as it must be known to find where its chain ends."""

    id: int
    held_seq: int
    chain: ChainEnd

    @property
    def last_seq(self) -> int:
        """Return the last seq that was given; 0 before the first."""
        ...


async def load(db: aiosqlite.Connection, lanes: Iterable[Chained]) -> None:
    """Tell each lane where its chain ends; the message itself counts more than the note.

    Messages of an older backhaul have no links: they count as linked as they are, and what comes after
    them begins the chain, at the hash of the last.
    """
    rows = await db.execute_fetchall("SELECT lane, seq, hash FROM chains")
    noted = {lane: ChainEnd(seq, hash_) for lane, seq, hash_ in rows}
    for lane in lanes:
        unlinked = lane.held_seq - 1 if lane.held_seq else lane.last_seq
        end = noted.get(lane.id, ChainEnd(unlinked))
        seq = min(end.seq, lane.last_seq)
        known = await _hash_at(db, lane.id, seq) or end.hash
        lane.chain = ChainEnd(seq, known if len(known) == HASH_BYTES else NO_LINK)


async def extend(db: aiosqlite.Connection, lane_id: int, end: ChainEnd, last_seq: int) -> ChainEnd:
    """Link the messages of a lane behind the end of its chain, as far as they may leave.

    Returns the new end; within a transaction.
    """
    held = await db.execute_fetchall(
        "SELECT min(seq) FROM messages WHERE lane = ? AND boot > 0", (lane_id,)
    )
    first_held = next(iter(held))[0]
    ready_seq = last_seq if first_held is None else first_held - 1
    after_seq = end.seq
    while end.seq < ready_seq:
        rows = await db.execute_fetchall(
            "SELECT id, seq, CAST(subject AS BLOB), CAST(body AS BLOB) FROM messages "
            "WHERE lane = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (lane_id, after_seq, ready_seq, LINK_ROWS),
        )
        linked = []
        for id_, seq, subject, body in rows:
            message, after_seq = body or b"", seq
            try:
                header = peek(message)
                if not header.link:
                    message = chain(message, epoch=header.epoch, seq=seq, link=end.hash)
                    linked.append((message, id_))
            except CodecError:
                continue  # damaged: the lane sets it aside, and its neighbours are linked without it
            end = ChainEnd(seq, hash_of(subject.decode(errors="replace"), message))
        await db.executemany("UPDATE messages SET body = ? WHERE id = ?", linked)
        if len(list(rows)) < LINK_ROWS:
            end = end._replace(seq=ready_seq)
    return end


async def write(db: aiosqlite.Connection, ends: dict[int, ChainEnd]) -> None:
    """Note where chains end, by the lane's id; within a transaction."""
    await db.executemany(
        "INSERT OR REPLACE INTO chains VALUES (?, ?, ?)",
        [(lane_id, *end) for lane_id, end in ends.items()],
    )


async def _hash_at(db: aiosqlite.Connection, lane_id: int, seq: int) -> bytes | None:
    rows = await db.execute_fetchall(
        "SELECT CAST(subject AS BLOB), CAST(body AS BLOB) FROM messages WHERE lane = ? AND seq = ?",
        (lane_id, seq),
    )
    for subject, body in rows:
        try:
            peek(body or b"")
        except CodecError:
            return None
        return hash_of(subject.decode(errors="replace"), body)
    return None
