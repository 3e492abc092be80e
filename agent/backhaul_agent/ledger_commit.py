"""How one transaction of the ledger is written."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent import ledger_boots, ledger_lanes, ledger_room
from backhaul_agent.budget import class_of
from backhaul_agent.ledger_rows import STAGED
from backhaul_codec import restamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiosqlite

    from backhaul_agent.ledger_lanes import Lane, NewSteps
    from backhaul_agent.ledger_reader import LedgerReader
    from backhaul_agent.ledger_rows import Changes, Quarantine


class MessageRow(NamedTuple):
    """A row of `messages`, but for its id."""

    lane: int
    seq: int
    subject: str
    body: bytes
    value_class: int
    t_lo: int | None
    t_hi: int | None
    boot: int


class Plan(NamedTuple):
    """What a transaction will write: seqs, row ids and steps are given out.

    ``lanes``: those that the messages go to, by name; with an opening they are new ones.
    """

    changes: Changes
    rows: list[MessageRow]
    staged: list[tuple[int, str, int, int, bytes, int, int]]
    lanes: dict[str, Lane]
    next_seqs: dict[str, int]
    steps: list[NewSteps]
    dropped: list[Lane]


def plan(ledger: LedgerReader, changes: Changes, staged_id: int) -> Plan:
    """Give everything in ``changes`` its place; staged rows get ids from ``staged_id`` on."""
    lanes, dropped = ledger.lanes, []
    if changes.opening is not None:
        known = [*ledger.closed.values(), *lanes.values()]
        last_id = max(lane.id for lane in known)
        lanes = ledger_lanes.opened(lanes.values(), changes.opening.epoch, last_id)
        dropped = ledger_lanes.droppable(ledger.closed)
    next_seqs, rows = _stamp(ledger, lanes, changes)
    staged = [
        (staged_id + index, row.node, row.points, zlib.crc32(row.body), *row[2:])
        for index, row in enumerate(changes.staged)
    ]
    steps = ledger_lanes.new_steps(ledger.lane, changes)
    return Plan(changes, rows, staged, lanes, next_seqs, steps, dropped)


def _stamp(
    ledger: LedgerReader, lanes: Mapping[str, Lane], changes: Changes
) -> tuple[dict[str, int], list[MessageRow]]:
    """Give every message its seq: (next seq of each lane touched, rows to insert)."""
    messages, epoch = changes.messages, ledger.epoch
    if changes.opening is not None:
        closed = {name: lane.last_seq for name, lane in ledger.lanes.items()}
        messages = [changes.opening.word(epoch, closed), *messages]
        epoch = changes.opening.epoch
    if changes.mark is not None:
        last_seqs = {name: lane.last_seq for name, lane in lanes.items()}
        for message in messages:
            last_seqs[message.lane] += 1
        last_seqs["live"] += 1  # the mark's own
        messages = [*messages, changes.mark(epoch, last_seqs)]
    next_seqs: dict[str, int] = {}
    rows = []
    for lane, subject, body, value_class, times, boot in messages:
        seq = next_seqs.get(lane) or lanes[lane].next_seq
        next_seqs[lane] = seq + 1
        stamped = restamp(body, epoch=epoch, seq=seq)
        value = class_of(subject) if value_class is None else value_class
        t_lo, t_hi = times or (None, None)
        place = (lanes[lane].id, seq)
        rows.append(MessageRow(*place, subject, stamped, value, t_lo, t_hi, boot))
    return next_seqs, rows


async def write(db: aiosqlite.Connection, ledger: LedgerReader, plan: Plan) -> None:
    """Write the whole plan in one transaction, durable when this returns."""
    changes = plan.changes
    await db.execute("BEGIN IMMEDIATE")
    for new in plan.steps:
        await ledger_lanes.write_steps(db, new)
    if changes.opening is not None:
        lanes = plan.lanes.values()
        await ledger_lanes.open_epoch(db, ledger.lanes.values(), lanes, changes.opening.epoch)
        await ledger_lanes.drop(db, plan.dropped)
    if plan.rows:
        await db.executemany(
            "INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            plan.rows,
        )
    if plan.staged:
        await db.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?)", plan.staged)
    if changes.unstage:
        await db.executemany("DELETE FROM staged WHERE id = ?", [(id_,) for id_ in changes.unstage])
    for row in changes.quarantine:
        await _set_aside(db, ledger, row, changes.time_ns)
    await _write_lanes(db, ledger, plan)
    if changes.boots:
        await ledger_boots.write_boots(db, changes.boots)
    if changes.settled:
        await ledger_boots.settle(db, changes.settled)
    if changes.meta:
        await db.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", list(changes.meta.items())
        )
    if changes.heads:
        await db.executemany(
            "INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?, ?)", changes.heads
        )
    for statement in changes.commands:
        await db.execute(*statement)
    if changes.evict:
        await ledger_room.give_up(db, changes.evict, changes.evicted)
    await db.execute("COMMIT")


async def _write_lanes(db: aiosqlite.Connection, ledger: LedgerReader, plan: Plan) -> None:
    if plan.next_seqs:
        await db.executemany(
            "UPDATE lanes SET next_seq = ? WHERE id = ?",
            [(seq, plan.lanes[name].id) for name, seq in plan.next_seqs.items()],
        )
    if watermarks := watermarks_of(ledger, plan.changes):
        await db.executemany(
            "UPDATE lanes SET watermark = ?, confirmed = max(confirmed, ?) WHERE id = ?",
            [(seq, seq, lane.id) for lane, seq in watermarks],
        )


def watermarks_of(ledger: LedgerReader, changes: Changes) -> list[tuple[Lane, int]]:
    """Return the lanes, closed ones too, whose watermark changes, and to what."""
    said = {(name, 0): seq for name, seq in changes.watermarks.items()} | changes.former
    found = ((ledger.lane(*place), seq) for place, seq in said.items())
    return [(lane, seq) for lane, seq in found if lane is not None]


async def _set_aside(
    db: aiosqlite.Connection, ledger: LedgerReader, row: Quarantine, time_ns: int
) -> None:
    """Move a row to `quarantined`; a message that is gone altogether leaves a bare entry."""
    insert = "INSERT OR IGNORE INTO quarantined (lane, epoch, seq, subject, body, reason, time_ns) "
    if row.lane == STAGED:
        found = "SELECT 'staged', 0, 0, node, body, ?, ? FROM staged WHERE id = ?"
        await db.execute(insert + found, (row.reason, time_ns, row.seq))
        await db.execute("DELETE FROM staged WHERE id = ?", (row.seq,))
        return
    lane = ledger.lane(row.lane, row.epoch)
    if lane is None:
        return
    place = (lane.id, row.seq)
    found = "SELECT ?, ?, ?, coalesce(max(subject), ''), max(body), ?, ? FROM messages "
    values = (row.lane, lane.epoch, row.seq, row.reason, time_ns, *place)
    await db.execute(insert + found + "WHERE lane = ? AND seq = ?", values)
    await db.execute("DELETE FROM messages WHERE lane = ? AND seq = ?", place)
