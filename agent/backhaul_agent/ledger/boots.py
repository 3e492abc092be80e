"""The ledger's statements about messages whose stamps wait for the time (docs/clocks.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import aiosqlite

from backhaul_agent.hub_time.hub_clock import Boot
from backhaul_agent.ledger.rows import CorrectedMessage

BOOTS = (
    "SELECT number, CAST(boot AS BLOB), provisional_ns, anchor_ns, error_ns, at_ns FROM boots "
    "ORDER BY number"
)
BOOTS_MAX = 64  # a vehicle that never syncs starts a few times a day


def pending(but_of: int) -> str:
    """Return the query for messages that wait, but none of so many boots."""
    return (
        "SELECT id, CAST(subject AS BLOB), CAST(body AS BLOB), boot FROM messages "  # noqa: S608
        f"WHERE boot > 0 AND boot NOT IN ({', '.join('?' * but_of)}) ORDER BY lane, seq LIMIT ?"
    )


async def write_boots(db: aiosqlite.Connection, boots: Iterable[Boot]) -> None:
    """Write the knowledge of starts of the machine; forget old ones that nothing waits for."""
    await db.executemany("INSERT OR REPLACE INTO boots VALUES (?, ?, ?, ?, ?, ?)", boots)
    await db.execute(
        "DELETE FROM boots WHERE number <= (SELECT max(number) FROM boots) - ? AND NOT EXISTS "
        "(SELECT 1 FROM messages WHERE messages.boot > 0 AND messages.boot = boots.number) "
        "AND number NOT IN (SELECT boot FROM staged)",
        (BOOTS_MAX,),
    )


async def settle(db: aiosqlite.Connection, settled: Sequence[CorrectedMessage]) -> None:
    """Let messages go, their times shifted; one that was let go before is left alone.

    Body and mark change in one statement: whatever dies when, no stamp is corrected twice.
    """
    await db.executemany(
        # Without a body only by damage: then it leaves as what cannot be read.
        "UPDATE messages SET body = coalesce(?, body, x''), boot = 0, t_lo = t_lo + ?, "
        "t_hi = t_hi + ? WHERE id = ? AND boot > 0",
        [(body, shift_ns, shift_ns, id_) for id_, body, shift_ns in settled],
    )


async def held(db: aiosqlite.Connection, lane: int) -> int:
    """Return the first seq of a lane that must not leave yet, 0 where all may."""
    rows = await db.execute_fetchall(
        "SELECT coalesce(min(seq), 0) FROM messages WHERE lane = ? AND boot > 0", (lane,)
    )
    return int(next(iter(rows))[0])
