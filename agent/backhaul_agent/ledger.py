"""The ledger: what the agent has acknowledged, and what it still owes the hub.

One SQLite file in WAL mode with synchronous=FULL. There is one writer (the commit task, see
`writer.py`) and one reader connection, which never blocks it. A commit either happens as a whole,
with seqs that have no holes, or not at all.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backhaul_agent import ledger_boots, ledger_room, ledger_schema
from backhaul_agent.budget import Budget, class_of
from backhaul_agent.errors import LedgerCorruptError, LedgerStorageError
from backhaul_agent.ledger_rows import (
    ROW_BYTES,
    STAGED,
    Boot,
    Changes,
    HeadRow,
    Pending,
    Quarantine,
    Row,
    StagedRow,
)
from backhaul_agent.reserve import says_full
from backhaul_agent.steps import Step, Steps
from backhaul_codec import restamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import aiosqlite

    from backhaul_agent.ages import Mark
    from backhaul_agent.budget import Candidate
    from backhaul_agent.reserve import Reserve

    # lane, seq, subject, body, value class, earliest and latest time, boot
    _MessageRow = tuple[int, int, str, bytes, int, int | None, int | None, int]

LANES = ("live", "bulk")
FORGET_ROWS = 512
RUNS_SLICE = 8192


@dataclass(slots=True)
class Lane:
    """A lane's committed state, in one epoch.

    ``next_seq``: the next seq to give out. ``watermark``: what the hub holds without gaps, and
    ``confirmed`` the highest there has been of it: rows up to there may have been forgotten.
    ``steps``: how far the sequences of OUT are ahead of the seqs in it. ``used_seq``: none beyond
    it was ever sent to that stream. ``held_seq``: the first seq that must not leave yet, because
    its stamps wait for the time; 0 where all may.
    """

    id: int
    name: str
    epoch: int
    next_seq: int
    watermark: int
    confirmed: int
    steps: Steps
    used_seq: int
    held_seq: int = 0

    @property
    def ready_seq(self) -> int:
        """Return the highest seq that may leave, as far as all before it may."""
        return self.held_seq - 1 if self.held_seq else self.last_seq

    @property
    def last_seq(self) -> int:
        """Return the highest seq given out, 0 where there is none."""
        return self.next_seq - 1


class Ledger:
    """An open ledger. Make one with `Ledger.open`; only one task may call `commit`."""

    def __init__(
        self,
        path: Path,
        opener: ledger_schema.Opener,
        db: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        epoch: int,
        budget: Budget,
    ) -> None:
        self.path = path
        self.epoch = epoch
        self.budget = budget
        self.lanes: dict[str, Lane] = {}
        self.closed: dict[tuple[str, int], Lane] = {}  # lanes of former epochs, by name and epoch
        self.meta: dict[str, str | int] = {}
        self.quarantined = 0
        self.forgotten = 0
        self._opener = opener
        self._db = db
        self._reader = reader
        self._reader_lock = asyncio.Lock()
        self._next_staged_id = 1
        self._uncertain = False
        self._confined = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        device: str,
        bytes_max: int,
        epoch: Callable[[], int],
        when_full: str = "evict",
        reserve: Reserve | None = None,
        opener: ledger_schema.Opener = ledger_schema.open_file,
    ) -> Ledger:
        """Open or create the ledger of ``device``; ``epoch`` draws a new ledger's epoch.

        Raises:
            LedgerError: this file cannot be used; the message carries a hint for the operator.
        """
        budget = Budget(bytes_max, when_full=when_full)
        try:
            return await cls._open(path, device, budget, epoch, opener)
        except LedgerStorageError as error:
            # Opening writes a little too; on a full disk the reserve is there for that.
            if not error.disk_full or reserve is None or not reserve.release():
                raise
        return await cls._open(path, device, budget, epoch, opener)

    @classmethod
    async def _open(
        cls,
        path: Path,
        device: str,
        budget: Budget,
        epoch: Callable[[], int],
        opener: ledger_schema.Opener,
    ) -> Ledger:
        try:
            db = await opener(path)
        except (sqlite3.Error, OSError) as error:
            raise LedgerStorageError(path, "opening", error) from error
        try:
            number = await ledger_schema.prepare(db, path, device, epoch)
            reader = await opener(path)
            await reader.execute("PRAGMA query_only = 1")
            await reader.execute("PRAGMA cache_size = -256")
        except BaseException as error:
            await db.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise LedgerStorageError(path, "opening", error) from error
            raise
        ledger = cls(path, opener, db, reader, number, budget)
        try:
            await ledger._load()
        except sqlite3.Error as error:
            await ledger.close()
            if says_full(error):
                raise LedgerStorageError(path, "opening", error) from error
            raise LedgerCorruptError(
                path, f"SQLite cannot read it: {error}", hint="move the file away and restart"
            ) from error
        return ledger

    async def commit(self, changes: Changes) -> list[int]:
        """Write all of ``changes`` in one transaction, durable when this returns.

        Returns the ids of the new staged rows, in order.

        Raises:
            LedgerStorageError: nothing was written; the ledger stays usable.
        """
        try:
            if self._uncertain:
                await self._load()
                self._uncertain = False
            next_seqs, rows = self._stamp(changes)
            first_id = self._next_staged_id
            staged = [
                (first_id + index, row.node, row.points, zlib.crc32(row.body), *row[2:])
                for index, row in enumerate(changes.staged)
            ]
            new_steps = self._new_steps(changes)
            await self._write(changes, rows, staged, next_seqs, new_steps)
        except (sqlite3.Error, OSError) as error:
            self._uncertain = True
            await self._roll_back()
            raise LedgerStorageError(self.path, "commit", error) from error
        for name, seq in next_seqs.items():
            self.lanes[name].next_seq = seq
        for name, seq in changes.watermarks.items():
            lane = self.lanes[name]
            lane.watermark, lane.confirmed = seq, max(lane.confirmed, seq)
        for name, (steps, used_seq) in new_steps.items():
            self.lanes[name].steps, self.lanes[name].used_seq = steps, used_seq
        self._hold(rows)
        if changes.settled or changes.evict:
            await self._measure_held()
        self.meta |= changes.meta
        self.quarantined += len(changes.quarantine)
        self._next_staged_id = first_id + len(staged)
        self.budget.grew(changes.weight)
        return [row[0] for row in staged]

    async def make_room(self) -> None:
        """Measure the ledger; where it is full, forget the oldest of what the hub holds.

        Raises:
            LedgerStorageError: the disk refused; what was forgotten so far stays forgotten.
        """
        await self.measure()
        async with self._writing("forgetting"):
            while self.budget.full:
                lanes = [*self.lanes.values(), *self.closed.values()]
                if count := await ledger_room.forget(self._db, lanes, FORGET_ROWS):
                    self.forgotten += count
                elif not await ledger_room.strip_quarantined(self._db, FORGET_ROWS):
                    break
                self.budget.measured(*await ledger_room.measure(self._db))

    async def measure(self) -> None:
        """Tell the budget what the ledger really takes."""
        async with self._writing("measuring"):
            self.budget.measured(*await ledger_room.measure(self._db))

    async def fold(self) -> None:
        """Move everything from the log into the file; the log keeps its space on the disk."""
        async with self._writing("folding the log"):
            await self._db.execute_fetchall("PRAGMA wal_checkpoint(RESTART)")

    async def confine(self) -> int:
        """Let the file grow no more, from now on; return its size, free pages included."""
        async with self._writing("confining"):
            self._confined = True
            return await ledger_room.confine(self._db)

    async def release(self) -> None:
        """Let the file grow again."""
        async with self._writing("releasing"):
            self._confined = False
            await ledger_room.release(self._db)

    async def oldest(self, value_class_max: int, after_id: int, rows_max: int) -> list[Candidate]:
        """Return the oldest messages worth no more than this, after a row, oldest first."""
        async with self._writing("reading"):
            return await ledger_room.oldest(self._db, value_class_max, after_id, rows_max)

    async def before(
        self, seqs: Mapping[int, int], value_class_max: int, rows_max: int
    ) -> list[Candidate]:
        """Return messages of each lane (by id) before a seq that may go."""
        async with self._writing("reading"):
            return await ledger_room.before(self._db, seqs, value_class_max, rows_max)

    async def present(self, candidates: Sequence[Candidate]) -> dict[int, list[int]]:
        """Return all seqs there are from the first to the last candidate of each lane."""
        async with self._writing("reading"):
            return await ledger_room.present(self._db, candidates)

    async def marks(self) -> list[Mark]:
        """Return when the ledger was how far."""
        async with self._writing("reading"):
            return await ledger_room.marks(self._db)

    async def write_mark(self, mark: Mark, oldest_ns: int) -> None:
        """Keep a mark, and none from before ``oldest_ns``."""
        async with self._writing("marking"):
            await ledger_room.write_mark(self._db, mark, oldest_ns)

    @asynccontextmanager
    async def _writing(self, operation: str) -> AsyncIterator[None]:
        """Roll back whatever fails on the commit task's connection, as one clear error."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._uncertain = True
            await self._roll_back()
            raise LedgerStorageError(self.path, operation, error) from error

    @property
    def epochs(self) -> set[int]:
        """Return the epochs this ledger knows of, the current one included."""
        return {self.epoch, *(epoch for _, epoch in self.closed)}

    def lane(self, name: str, epoch: int) -> Lane | None:
        """Return a lane of the current epoch or a former one, None where it is not known."""
        if epoch == self.epoch:
            return self.lanes.get(name)
        return self.closed.get((name, epoch))

    async def read(self, lane: str, from_seq: int, rows_max: int, epoch: int = 0) -> list[Row]:
        """Return up to ``rows_max`` committed messages of a lane from ``from_seq`` on, in order.

        ``epoch`` 0 is the current one.

        Raises:
            LedgerStorageError: SQLite could not read.
        """
        found = self.lane(lane, epoch or self.epoch)
        where = "seq >= ? ORDER BY seq LIMIT ?"
        return await self._rows(found, where, from_seq, rows_max) if found else []

    async def _rows(self, lane: Lane, where: str, *parameters: int) -> list[Row]:
        # Cast, because damage may turn a blob into text that is no UTF-8, or into a number: the
        # row must come back, so that it can be judged and set aside.
        query = (
            "SELECT seq, CAST(subject AS BLOB), CAST(body AS BLOB), boot FROM messages "  # noqa: S608
            f"WHERE lane = ? AND {where}"
        )
        rows = await self._query(query, lane.id, *parameters)
        return [Row(seq, _text(subject), body or b"", boot) for seq, subject, body, boot in rows]

    async def subjects(
        self, lane: str, after_seq: int, class_min: int, class_max: int, rows_max: int
    ) -> list[tuple[int, str]]:
        """Return seq and subject of messages of these value classes after a seq, in order.

        Raises:
            LedgerStorageError: SQLite could not read.
        """
        query = (
            "SELECT seq, CAST(subject AS BLOB) FROM messages WHERE lane = ? AND seq > ?"
            " AND value_class BETWEEN ? AND ? ORDER BY seq LIMIT ?"
        )
        rows = await self._query(
            query, self.lanes[lane].id, after_seq, class_min, class_max, rows_max
        )
        return [(seq, _text(subject)) for seq, subject in rows]

    async def explained(self, lane: str, lo: int, hi: int) -> set[int]:
        """Return which seqs of ``lo..hi`` are quarantined or evicted: they will never come."""
        query = "SELECT seq FROM quarantined WHERE lane = ? AND epoch = ? AND seq BETWEEN ? AND ?"
        found = {seq for (seq,) in await self._query(query, lane, self.epoch, lo, hi)}
        query = "SELECT lo, hi FROM evicted WHERE lane = ? AND lo <= ? AND hi >= ?"
        for first, last in await self._query(query, self.lanes[lane].id, hi, lo):
            found.update(range(max(first, lo), min(last, hi) + 1))
        return found

    async def runs(self, lane: str, epoch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the runs of seqs in ``lo..hi`` that are there and may leave, in order.

        Raises:
            LedgerStorageError: SQLite could not read.
        """
        found = self.lane(lane, epoch)
        runs: list[tuple[int, int]] = []
        if found is None:
            return runs
        hi = min(hi, found.ready_seq)
        query = (
            "SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) "
            "AS run FROM messages WHERE lane = ? AND seq BETWEEN ? AND ?) GROUP BY run ORDER BY 1"
        )
        # In slices, so that other readers get their turn.
        for low in range(lo, hi + 1, RUNS_SLICE):
            high = min(hi, low + RUNS_SLICE - 1)
            runs += [(a, b) for a, b in await self._query(query, found.id, low, high)]
        return runs

    async def given_up(self, lane: str, epoch: int, lo: int, hi: int) -> list[tuple[int, int, str]]:
        """Return what of ``lo..hi`` was quarantined or evicted, and why: (first, last, reason)."""
        query = (
            "SELECT seq, seq, 'quarantined: ' || reason FROM quarantined "
            "WHERE lane = ? AND epoch = ? AND seq BETWEEN ? AND ?"
        )
        spans = [(a, b, why) for a, b, why in await self._query(query, lane, epoch, lo, hi)]
        if (found := self.lane(lane, epoch)) is not None:
            query = "SELECT lo, hi, reason FROM evicted WHERE lane = ? AND lo <= ? AND hi >= ?"
            for first, last, reason in await self._query(query, found.id, hi, lo):
                spans.append((max(first, lo), min(last, hi), reason))
        return sorted(spans)

    async def sizes(self, lane: str, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return ``(last seq, bytes)`` of each run of 64 seqs in ``lo..hi``, in order."""
        query = (
            f"SELECT max(seq), sum(length(subject) + length(body) + {ROW_BYTES}) FROM messages "  # noqa: S608 - a constant
            "WHERE lane = ? AND seq BETWEEN ? AND ? GROUP BY seq / 64 ORDER BY 1"
        )
        return [(seq, size) for seq, size in await self._query(query, self.lanes[lane].id, lo, hi)]

    async def staged(self) -> list[StagedRow]:
        """Return all staged rows in the order they were acknowledged."""
        query = (
            "SELECT id, CAST(node AS BLOB), CAST(points AS INTEGER), CAST(crc AS INTEGER), "
            "CAST(body AS BLOB), boot, clock FROM staged ORDER BY id"
        )
        return [
            StagedRow(id_, _text(node), points, body, zlib.crc32(body) == crc, boot, clock)
            for id_, node, points, crc, body, boot, clock in await self._query(query)
        ]

    async def boots(self) -> list[Boot]:
        """Return what is known of the machine's starts, oldest first."""
        return [Boot(*row) for row in await self._query(ledger_boots.BOOTS)]

    async def pending(self, but_of: Collection[int], rows_max: int) -> list[Pending]:
        """Return up to ``rows_max`` messages that wait to be settled, but none of some boots."""
        rows = await self._query(ledger_boots.pending(len(but_of)), *but_of, rows_max)
        return [
            Pending(id_, _text(subject), body or b"", boot) for id_, subject, body, boot in rows
        ]

    async def heads(self) -> list[HeadRow]:
        """Return all heads; `head_keeper` judges which of them are whole."""
        query = (
            "SELECT CAST(parent AS BLOB), CAST(node AS BLOB), CAST(type AS BLOB), "
            "CAST(key AS BLOB), CAST(crc AS INTEGER), CAST(body AS BLOB) FROM heads"
        )
        return [
            HeadRow(_text(parent), _text(node), _text(type_), _text(key), crc, body or b"")
            for parent, node, type_, key, crc, body in await self._query(query)
        ]

    async def close(self) -> None:
        """Close both connections; the last one folds the WAL into the file."""
        await self._reader.close()
        await self._db.close()

    def _hold(self, rows: Sequence[_MessageRow]) -> None:
        by_id = {lane.id: lane for lane in self.lanes.values()}
        for lane, seq, *_, boot in rows:
            if boot and not by_id[lane].held_seq:
                by_id[lane].held_seq = seq

    async def _measure_held(self) -> None:
        """Find again from where on lanes are held. What was committed stays, if this fails."""
        try:
            for lane in [*self.lanes.values(), *self.closed.values()]:
                if lane.held_seq:
                    lane.held_seq = await ledger_boots.held(self._db, lane.id)
        except (sqlite3.Error, OSError):
            self._uncertain = True  # the next commit reads everything back first

    def _stamp(self, changes: Changes) -> tuple[dict[str, int], list[_MessageRow]]:
        """Give every message its seq: (next seq of each lane touched, rows to insert)."""
        messages = changes.messages
        if changes.mark is not None:
            last_seqs = {name: lane.last_seq for name, lane in self.lanes.items()}
            for message in messages:
                last_seqs[message.lane] += 1
            last_seqs["live"] += 1  # the mark's own
            messages = [*messages, changes.mark(self.epoch, last_seqs)]
        next_seqs: dict[str, int] = {}
        rows = []
        for lane, subject, body, value_class, times, boot in messages:
            seq = next_seqs.get(lane) or self.lanes[lane].next_seq
            next_seqs[lane] = seq + 1
            stamped = restamp(body, epoch=self.epoch, seq=seq)
            value = class_of(subject) if value_class is None else value_class
            t_lo, t_hi = times or (None, None)
            rows.append((self.lanes[lane].id, seq, subject, stamped, value, t_lo, t_hi, boot))
        return next_seqs, rows

    def _new_steps(self, changes: Changes) -> dict[str, tuple[Steps, int]]:
        """Return the steps and the used seq of each lane where they change."""
        new: dict[str, tuple[Steps, int]] = {}
        for name, created, step, fresh in changes.steps:
            steps, used_seq = new.get(name) or (self.lanes[name].steps, self.lanes[name].used_seq)
            if fresh:
                steps, used_seq = Steps(), step.from_seq
            new[name] = steps.with_step(created, step), used_seq
        for name, seq in changes.used.items():
            steps, used_seq = new.get(name) or (self.lanes[name].steps, self.lanes[name].used_seq)
            new[name] = steps, max(used_seq, seq)
        return new

    async def _write(
        self,
        changes: Changes,
        rows: list[_MessageRow],
        staged: list[tuple[int, str, int, int, bytes, int, int]],
        next_seqs: dict[str, int],
        new_steps: dict[str, tuple[Steps, int]],
    ) -> None:
        db = self._db
        await db.execute("BEGIN IMMEDIATE")
        if rows:
            await db.executemany(
                "INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
        if staged:
            await db.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?)", staged)
        if changes.unstage:
            await db.executemany(
                "DELETE FROM staged WHERE id = ?", [(id_,) for id_ in changes.unstage]
            )
        for row in changes.quarantine:
            await self._set_aside(row, changes.time_ns)
        if next_seqs:
            await db.executemany(
                "UPDATE lanes SET next_seq = ? WHERE id = ?",
                [(seq, self.lanes[name].id) for name, seq in next_seqs.items()],
            )
        if changes.watermarks:
            await db.executemany(
                "UPDATE lanes SET watermark = ?, confirmed = max(confirmed, ?) WHERE id = ?",
                [(seq, seq, self.lanes[name].id) for name, seq in changes.watermarks.items()],
            )
        for name, (steps, used_seq) in new_steps.items():
            await self._write_steps(self.lanes[name], steps, used_seq)
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
        if changes.evict:
            await ledger_room.give_up(db, changes.evict, changes.evicted)
        await db.execute("COMMIT")

    async def _write_steps(self, lane: Lane, steps: Steps, used_seq: int) -> None:
        await self._db.execute(
            "UPDATE lanes SET stream_created = ?, used_seq = ? WHERE id = ?",
            (steps.created, used_seq, lane.id),
        )
        if steps != lane.steps:
            await self._db.execute("DELETE FROM steps WHERE lane = ?", (lane.id,))
            await self._db.executemany(
                "INSERT INTO steps VALUES (?, ?, ?)", [(lane.id, *step) for step in steps.steps]
            )

    async def _set_aside(self, row: Quarantine, time_ns: int) -> None:
        """Move a row to `quarantined`; a message that is gone altogether leaves a bare entry."""
        insert = (
            "INSERT OR IGNORE INTO quarantined (lane, epoch, seq, subject, body, reason, time_ns) "
        )
        if row.lane == STAGED:
            found = "SELECT 'staged', 0, 0, node, body, ?, ? FROM staged WHERE id = ?"
            await self._db.execute(insert + found, (row.reason, time_ns, row.seq))
            await self._db.execute("DELETE FROM staged WHERE id = ?", (row.seq,))
            return
        lane = self.lane(row.lane, row.epoch or self.epoch)
        if lane is None:
            return
        place = (lane.id, row.seq)
        found = "SELECT ?, ?, ?, coalesce(max(subject), ''), max(body), ?, ? FROM messages "
        values = (row.lane, lane.epoch, row.seq, row.reason, time_ns, *place)
        await self._db.execute(insert + found + "WHERE lane = ? AND seq = ?", values)
        await self._db.execute("DELETE FROM messages WHERE lane = ? AND seq = ?", place)

    async def _load(self) -> None:
        """Read the lanes and counters back: at opening, and after a commit of unknown outcome."""
        await self._db.executemany(
            "INSERT OR IGNORE INTO lanes (name, epoch) VALUES (?, ?)",
            [(name, self.epoch) for name in LANES],
        )
        rows = await self._db.execute_fetchall(
            "SELECT id, name, epoch, max(next_seq, 1 + coalesce((SELECT max(seq) FROM messages "
            "WHERE lane = lanes.id), 0)), watermark, confirmed, stream_created, used_seq FROM lanes"
        )
        steps = await self._db.execute_fetchall("SELECT * FROM steps ORDER BY lane, from_seq")
        for id_, name, epoch, next_seq, watermark, confirmed, created, used_seq in rows:
            found = [Step(*step) for lane_id, *step in steps if lane_id == id_]
            known = Steps(created, found)
            held_seq = await ledger_boots.held(self._db, id_)
            lane = Lane(id_, name, epoch, next_seq, watermark, confirmed, known, used_seq, held_seq)
            if epoch == self.epoch:
                self.lanes[name] = lane
            else:
                self.closed[name, epoch] = lane
        meta = await self._db.execute_fetchall("SELECT name, value FROM meta")
        self.meta = {str(name): value for name, value in meta}
        counts = await self._db.execute_fetchall(
            "SELECT (SELECT coalesce(max(id), 0) FROM staged), (SELECT count(*) FROM quarantined)"
        )
        last_staged, self.quarantined = next(iter(counts))
        self._next_staged_id = last_staged + 1
        self.budget.measured(*await ledger_room.measure(self._db))

    async def _roll_back(self) -> None:
        """Leave no transaction open; a connection that cannot even do that is replaced."""
        try:
            if self._db.in_transaction:
                await self._db.execute("ROLLBACK")
        except (sqlite3.Error, OSError):
            await self._reopen()

    async def _reopen(self) -> None:
        try:
            fresh = await self._opener(self.path)
            await ledger_schema.set_pragmas(fresh)
            if self._confined:
                await ledger_room.confine(fresh)
        except (sqlite3.Error, OSError):
            return  # the next commit fails, rolls back, and comes here again
        old, self._db = self._db, fresh
        await old.close()

    async def query(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the reading connection, which sees what is committed and never waits for it.

        Raises:
            LedgerStorageError: SQLite could not read.
        """
        return await self._query(query, *parameters)

    async def _query(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            async with self._reader_lock:
                rows = await self._reader.execute_fetchall(query, parameters)
        except (sqlite3.Error, OSError) as error:
            raise LedgerStorageError(self.path, "reading", error) from error
        return [tuple(row) for row in rows]


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")
