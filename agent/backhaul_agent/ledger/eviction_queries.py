"""The questions that making room asks the ledger's database, and how it forgets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

import aiosqlite
import msgspec

from backhaul_agent.ledger.age_index import AgeMark
from backhaul_agent.ledger.eviction_policy import Candidate
from backhaul_agent.ledger.lanes import CommittedLane

EVICTED_ROWS = 4096
PAGES_MAX = 1_073_741_823
_CANDIDATE = (
    "SELECT m.id, m.lane, m.seq, length(m.subject) + coalesce(length(m.body), 0), "
    "m.seq <= lanes.watermark FROM messages m JOIN lanes ON lanes.id = m.lane "
)


def _candidate(id_: int, lane: int, seq: int, size: int, confirmed: int) -> Candidate:
    return Candidate(id_, lane, seq, size, bool(confirmed))


async def measure(db: aiosqlite.Connection) -> tuple[int, list[int]]:
    """Return the bytes in use, free pages not counted, and the bytes of messages of each class."""
    pages = await db.execute_fetchall(
        "SELECT (p.page_count - f.freelist_count) * s.page_size "
        "FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s"
    )
    sums = await db.execute_fetchall("SELECT bytes FROM classes ORDER BY value_class")
    return int(next(iter(pages))[0]), [int(row[0]) for row in sums]


async def forget(db: aiosqlite.Connection, lanes: Iterable[CommittedLane], rows_max: int) -> int:
    """Delete up to ``rows_max`` of the oldest messages the hub holds; return how many."""
    oldest: list[int] = []
    for lane in lanes:
        found = await db.execute_fetchall(
            "SELECT id FROM messages WHERE lane = ? AND seq <= ? ORDER BY seq LIMIT ?",
            (lane.id, lane.watermark, rows_max),
        )
        oldest += [int(row[0]) for row in found]
    ids = sorted(oldest)[:rows_max]
    if ids:
        await db.execute("BEGIN IMMEDIATE")
        await db.executemany("DELETE FROM messages WHERE id = ?", [(id_,) for id_ in ids])
        await db.execute("COMMIT")
    return len(ids)


async def oldest(
    db: aiosqlite.Connection, value_class_max: int, after_id: int, rows_max: int
) -> list[Candidate]:
    """Return the oldest messages worth no more than this, after a row, oldest first."""
    found: list[Candidate] = []
    for value_class in range(value_class_max + 1):
        query = _CANDIDATE + "WHERE m.value_class = ? AND m.id > ? ORDER BY m.id LIMIT ?"
        rows = await db.execute_fetchall(query, (value_class, after_id, rows_max))
        found += [_candidate(*row) for row in rows]
    return sorted(found)[:rows_max]


async def before(
    db: aiosqlite.Connection, seqs: Mapping[int, int], value_class_max: int, rows_max: int
) -> list[Candidate]:
    """Return the messages of each lane (by id) before a seq that may go: worth no more than this, or confirmed."""
    found: list[Candidate] = []
    for lane, seq in seqs.items():
        query = _CANDIDATE + (
            "WHERE m.lane = ? AND m.seq < ? AND (m.value_class <= ? OR m.seq <= lanes.watermark) "
            "ORDER BY m.seq LIMIT ?"
        )
        rows = await db.execute_fetchall(query, (lane, seq, value_class_max, rows_max))
        found += [_candidate(*row) for row in rows]
    return found[:rows_max]


async def present(db: aiosqlite.Connection, chosen: Iterable[Candidate]) -> dict[int, list[int]]:
    """Return all seqs there are from the first to the last chosen of each lane."""
    bounds: dict[int, tuple[int, int]] = {}
    for candidate in chosen:
        lo, hi = bounds.get(candidate.lane, (candidate.seq, candidate.seq))
        bounds[candidate.lane] = (min(lo, candidate.seq), max(hi, candidate.seq))
    found = {}
    for lane, (lo, hi) in bounds.items():
        rows = await db.execute_fetchall(
            "SELECT seq FROM messages WHERE lane = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (lane, lo, hi),
        )
        found[lane] = [int(row[0]) for row in rows]
    return found


async def give_up(
    db: aiosqlite.Connection, ids: Iterable[int], spans: Iterable[tuple[int, int, int, str]]
) -> None:
    """Delete messages and note their spans (lane id, lo, hi, reason), within a transaction."""
    await db.executemany("DELETE FROM messages WHERE id = ?", [(id_,) for id_ in ids])
    for lane, lo, hi, reason in spans:
        longer = await db.execute(
            "UPDATE evicted SET hi = ? WHERE lane = ? AND hi = ? AND reason = ?",
            (hi, lane, lo - 1, reason),
        )
        if not longer.rowcount:
            await db.execute(
                "INSERT OR REPLACE INTO evicted VALUES (?, ?, ?, ?)", (lane, lo, hi, reason)
            )
    # The hub knows of what is under its watermark; so the table does not grow for ever.
    await db.execute(
        "DELETE FROM evicted WHERE (SELECT count(*) FROM evicted) > ? "
        "AND hi <= (SELECT watermark FROM lanes WHERE id = evicted.lane)",
        (EVICTED_ROWS,),
    )


async def confine(db: aiosqlite.Connection) -> int:
    """Let the file have no more pages than now; return how many bytes they are."""
    rows = await db.execute_fetchall(
        "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size"
    )
    pages, size = next(iter(rows))
    await db.execute_fetchall(f"PRAGMA max_page_count = {int(pages)}")
    return int(pages) * int(size)


async def release(db: aiosqlite.Connection) -> None:
    """Let the file have as many pages as SQLite can count."""
    await db.execute_fetchall(f"PRAGMA max_page_count = {PAGES_MAX}")


async def marks(db: aiosqlite.Connection) -> list[AgeMark]:
    """Return when the ledger was how far, as far as that can be read: one less keeps a message longer."""
    rows = await db.execute_fetchall("SELECT time_ns, next_seqs FROM ages")
    found = []
    for time_ns, text in rows:
        with suppress(msgspec.DecodeError, TypeError):
            found.append(AgeMark(int(time_ns), msgspec.json.decode(text, type=dict[int, int])))
    return found


async def write_mark(db: aiosqlite.Connection, mark: AgeMark, oldest_ns: int) -> None:
    """Keep a mark; forget those before the oldest that is needed, and those it replaces."""
    await db.execute("BEGIN IMMEDIATE")
    await db.execute(
        "DELETE FROM ages WHERE time_ns < ? OR time_ns >= ?", (oldest_ns, mark.time_ns)
    )
    row = (mark.time_ns, json.dumps(dict(mark.next_seqs)))
    await db.execute("INSERT INTO ages VALUES (?, ?)", row)
    await db.execute("COMMIT")


async def strip_quarantined(db: aiosqlite.Connection, rows_max: int) -> int:
    """Drop the bytes of the oldest rows set aside, keep why they were; return how many."""
    done = await db.execute(
        "UPDATE quarantined SET body = NULL WHERE id IN "
        "(SELECT id FROM quarantined WHERE body IS NOT NULL ORDER BY id LIMIT ?)",
        (rows_max,),
    )
    return done.rowcount
