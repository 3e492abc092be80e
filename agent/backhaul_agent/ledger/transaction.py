"""How one transaction of the ledger is written."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import aiosqlite

from backhaul_agent.ledger import boots as ledger_boots
from backhaul_agent.ledger import chain as ledger_chain
from backhaul_agent.ledger import eviction_queries as ledger_room
from backhaul_agent.ledger import lanes as ledger_lanes
from backhaul_agent.ledger.chain import ChainEnd
from backhaul_agent.ledger.eviction_policy import class_of
from backhaul_agent.ledger.lanes import CommittedLane, NewSteps
from backhaul_agent.ledger.reader import LedgerReader
from backhaul_agent.ledger.rows import (
    STAGED,
    Adopted,
    LedgerChanges,
    LedgerRow,
    Outgoing,
    OwnRow,
    Quarantine,
)
from backhaul_codec import CodecError, chain, hash_of, restamp
from backhaul_codec.wire.split import survey

_INTO_MESSAGES = (
    "INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


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


class TransactionPlan(NamedTuple):
    """The writes of a transaction in full: seqs, row ids and steps are given out.

    ``moved``: rows that stood elsewhere, each with its id there. ``lanes``: those that the messages go to, by name; with an opening they are new ones. ``chains``:
    where the chains of lanes end, by the lane's id; `write` adds what it links besides.
    """

    changes: LedgerChanges
    rows: list[MessageRow]
    moved: list[tuple[MessageRow, int]]
    staged: list[tuple[int, str, int, int, bytes, int, int]]
    lanes: dict[str, CommittedLane]
    next_seqs: dict[str, int]
    chains: dict[int, ChainEnd]
    steps: list[NewSteps]
    dropped: list[CommittedLane]
    entered: list[CommittedLane]


def plan(ledger: LedgerReader, changes: LedgerChanges, staged_id: int) -> TransactionPlan:
    """Give everything in ``changes`` its place; staged rows get ids from ``staged_id`` on."""
    lanes, dropped = ledger.lanes, []
    if changes.opening is not None:
        known = [*ledger.closed.values(), *lanes.values()]
        last_id = max(lane.id for lane in known)
        lanes = ledger_lanes.opened(lanes.values(), changes.opening.epoch, last_id)
        dropped = ledger_lanes.droppable(ledger.closed)
    next_seqs, rows, chains = _stamp(ledger, lanes, changes)
    staged = [
        (staged_id + index, row.node, row.points, zlib.crc32(row.body), *row[2:])
        for index, row in enumerate(changes.staged)
    ]
    steps = ledger_lanes.new_steps(ledger.lane, changes)
    last_id = max(lane.id for lane in [*ledger.every_lane(), *lanes.values()])
    adopted = _unknown(ledger, changes.adopted)
    entered = ledger_lanes.entered(ledger.lane, last_id, adopted)
    chains |= {lane.id: lane.chain for lane in entered}
    found, moved = _adopted(entered, adopted)
    rows += found
    return TransactionPlan(
        changes, rows, moved, staged, lanes, next_seqs, chains, steps, dropped, entered
    )


def _stamp(
    ledger: LedgerReader, lanes: Mapping[str, CommittedLane], changes: LedgerChanges
) -> tuple[dict[str, int], list[MessageRow], dict[int, ChainEnd]]:
    """Give every message its seq and link: (next seq of each lane touched, rows, ends of chains)."""
    messages, epoch = changes.messages, ledger.epoch
    if changes.opening is not None:
        closed = {name: lane.last_seq for name, lane in ledger.lanes.items()}
        messages = [changes.opening.word(epoch, closed), *messages]
        epoch = changes.opening.epoch
    next_seqs: dict[str, int] = {}
    chains: dict[int, ChainEnd] = {}
    rows: list[MessageRow] = []

    def stamp(message: Outgoing) -> None:
        lane, subject, body, value_class, times, boot = message
        seq = next_seqs.get(lane) or lanes[lane].next_seq
        next_seqs[lane] = seq + 1
        id_ = lanes[lane].id
        end = chains.get(id_, lanes[lane].chain)
        if boot or end.seq != seq - 1:
            stamped = restamp(body, epoch=epoch, seq=seq)  # linked once it may leave
        else:
            stamped = chain(body, epoch=epoch, seq=seq, link=end.hash)
            chains[id_] = ChainEnd(seq, hash_of(subject, stamped))
        value = class_of(subject) if value_class is None else value_class
        t_lo, t_hi = times or (None, None)
        rows.append(MessageRow(id_, seq, subject, stamped, value, t_lo, t_hi, boot))

    for message in messages:
        stamp(message)
    if changes.mark is not None:
        last_seqs = {name: next_seqs.get(name, lane.next_seq) - 1 for name, lane in lanes.items()}
        last_seqs["live"] += (
            1  # the mark's own, whose hash it cannot hold: its link says the one before
        )
        ends = {name: chains.get(lane.id, lane.chain) for name, lane in lanes.items()}
        hashes = {
            name: end.hash.hex() for name, end in ends.items() if 0 < end.seq == last_seqs[name]
        }
        stamp(changes.mark(epoch, last_seqs, hashes))
    return next_seqs, rows, chains


def _unknown(ledger: LedgerReader, adopted: Iterable[Adopted]) -> list[Adopted]:
    """Return the deferred writes that the ledger does not have yet: one may come again after it was written.

    What is moved may come below what is there; `_move` looks at it.
    """
    last_seqs: dict[tuple[str, int], int] = {}
    found = []
    for name, epoch, rows in adopted:
        lane = ledger.lane(name, epoch)
        last_seq = last_seqs.get((name, epoch), lane.last_seq if lane is not None else 0)
        if new := [row for row in rows if row.seq > last_seq or isinstance(row, OwnRow)]:
            found.append(Adopted(name, epoch, new))
            last_seqs[name, epoch] = max(last_seq, new[-1].seq)
    return found


def _adopted(
    lanes: Iterable[CommittedLane], adopted: Iterable[Adopted]
) -> tuple[list[MessageRow], list[tuple[MessageRow, int]]]:
    """Return rows of messages found in OUT, as they stand there; and of moved ones, with their old ids."""
    ids = {(lane.name, lane.epoch): lane.id for lane in lanes}
    rows: list[MessageRow] = []
    moved: list[tuple[MessageRow, int]] = []
    for found in adopted:
        lane = ids[found.lane, found.epoch]
        for row in found.rows:
            new = MessageRow(lane, row.seq, row.subject, row.body, *_worth(row), 0)
            if isinstance(row, OwnRow):
                moved.append((new, row.id))
            else:
                rows.append(new)
    return rows, moved


def _worth(row: LedgerRow | OwnRow) -> tuple[int, int | None, int | None]:
    """Return the value class of a message, and the earliest and latest time of its points."""
    if isinstance(row, OwnRow):
        return row.value_class, row.t_lo, row.t_hi
    return class_of(row.subject), *(row.times or _times(row.body))


def _times(body: bytes) -> tuple[int | None, int | None]:
    """Return the earliest and latest time of a frame's points; none of a frame without any to look up."""
    try:
        found = survey(body)
    except CodecError:
        return None, None
    return found.t_lo, found.t_hi


async def write(db: aiosqlite.Connection, ledger: LedgerReader, plan: TransactionPlan) -> None:
    """Write the whole plan in one transaction, durable when this returns."""
    changes = plan.changes
    await db.execute("BEGIN IMMEDIATE")
    for new in plan.steps:
        await ledger_lanes.write_steps(db, new)
    if changes.opening is not None:
        lanes = plan.lanes.values()
        await ledger_lanes.open_epoch(db, ledger.lanes.values(), lanes, changes.opening.epoch)
        await ledger_lanes.drop(db, plan.dropped)
    if plan.entered:
        await ledger_lanes.enter(db, plan.entered)
    if plan.rows:
        await db.executemany(f"INSERT {_INTO_MESSAGES}", plan.rows)
    staying = await _move(db, plan.moved)
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
        evict = [id_ for id_ in changes.evict if id_ not in staying]
        await ledger_room.give_up(db, evict, changes.evicted)
    await _link(db, ledger, plan)
    await db.execute("COMMIT")


async def _move(db: aiosqlite.Connection, moved: Iterable[tuple[MessageRow, int]]) -> set[int]:
    """Write the moved messages; return the old ids of those whose place is taken, found meanwhile.

    One that stands there already, because this was written and is tried again, is moved.
    """
    staying = set()
    for row, id_ in moved:
        await db.execute(f"INSERT OR IGNORE {_INTO_MESSAGES}", row)
        there = await db.execute_fetchall(
            "SELECT 1 FROM messages WHERE lane = ? AND seq = ? AND subject = ? AND body = ?",
            row[:4],
        )
        if not list(there):
            staying.add(id_)
    return staying


async def _link(db: aiosqlite.Connection, ledger: LedgerReader, plan: TransactionPlan) -> None:
    """Link the messages that may leave from now on, and note where chains end."""
    next_seqs = {plan.lanes[name].id: seq for name, seq in plan.next_seqs.items()}
    lanes = {lane.id: lane for lane in [*ledger.every_lane(), *plan.lanes.values()]}
    dropped = {lane.id for lane in plan.dropped}
    for lane in [each for each in lanes.values() if each.id not in dropped]:
        end = plan.chains.get(lane.id, lane.chain)
        last_seq = next_seqs.get(lane.id, lane.next_seq) - 1
        may_have_changed = plan.changes.settled or plan.changes.evict or plan.changes.quarantine
        if end.seq < last_seq and (may_have_changed or not lane.held_seq):
            plan.chains[lane.id] = await ledger_chain.extend(db, lane.id, end, last_seq)
    if plan.chains:
        await ledger_chain.write(db, plan.chains)


async def _write_lanes(
    db: aiosqlite.Connection, ledger: LedgerReader, plan: TransactionPlan
) -> None:
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


def watermarks_of(ledger: LedgerReader, changes: LedgerChanges) -> list[tuple[CommittedLane, int]]:
    """Return the lanes, closed ones too, with a new watermark, and the watermark."""
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
