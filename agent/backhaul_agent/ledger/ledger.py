"""The ledger: the points that the agent has acknowledged and still owes the hub.

One SQLite file in WAL mode with synchronous=FULL. There is one writer (the commit task, see
`commit/writer.py`) and one reader connection (`ledger/reader.py`), which never blocks it. A commit
(`ledger/transaction.py`) either happens as a whole, with seqs that have no holes, or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiosqlite

from backhaul_agent.errors import LedgerCorruptError, LedgerStorageError, says_damaged
from backhaul_agent.ledger import boots as ledger_boots
from backhaul_agent.ledger import chain as ledger_chain
from backhaul_agent.ledger import dictionary_rows
from backhaul_agent.ledger import eviction_queries as ledger_room
from backhaul_agent.ledger import lanes as ledger_lanes
from backhaul_agent.ledger import schema as ledger_schema
from backhaul_agent.ledger import transaction as ledger_commit
from backhaul_agent.ledger.age_index import AgeMark
from backhaul_agent.ledger.damage import (
    asides,
    frames_committed,
    header_is_spoilt,
    lacks_tables,
    spoilt_lane,
    spoilt_rows,
)
from backhaul_agent.ledger.eviction_policy import Budget, Candidate
from backhaul_agent.ledger.reader import LedgerReader
from backhaul_agent.ledger.rows import LedgerChanges
from backhaul_codec.kinds import SHARED_LANES

if TYPE_CHECKING:
    from backhaul_agent.ledger.disk_reserve import Reserve

FORGET_ROWS = 512


class Ledger(LedgerReader):
    """An open ledger. Make one with `Ledger.open`; only one task may call `commit`."""

    def __init__(
        self,
        path: Path,
        opener: ledger_schema.Opener,
        db: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        epoch: int,
        budget: Budget,
        lanes: Collection[str],
    ) -> None:
        super().__init__(path, reader, epoch)
        self.budget = budget
        self.meta: dict[str, str | int] = {}
        self.fresh = False  # created by this process: nobody can know more of its epoch
        self.went_back = ""  # in words: SQLite found less of the log than was committed
        self.quarantined = 0
        self.forgotten = 0
        self._lane_names = lanes
        self._opener = opener
        self._db = db
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
        lanes: Collection[str] = SHARED_LANES,
    ) -> Ledger:
        """Open or create the ledger of ``device``; ``epoch`` draws a new ledger's epoch.

        It has these ``lanes``, and all that it ever had.

        Raises:
            LedgerError: this file cannot be used; the message carries a hint for the operator.
        """
        budget = Budget(bytes_max, when_full=when_full)
        try:
            return await cls._open(path, device, budget, epoch, opener, lanes)
        except LedgerStorageError as error:
            if header_is_spoilt(path, ledger_schema.APPLICATION_ID):
                raise LedgerCorruptError(path, f"its header is spoilt: {error.cause}") from error
            # Opening writes a little too; on a full disk the reserve is there for that.
            if not error.disk_full or reserve is None or not reserve.release():
                raise
        return await cls._open(path, device, budget, epoch, opener, lanes)

    @classmethod
    async def _open(
        cls,
        path: Path,
        device: str,
        budget: Budget,
        epoch: Callable[[], int],
        opener: ledger_schema.Opener,
        lanes: Collection[str],
    ) -> Ledger:
        try:
            committed = frames_committed(path)
            db = await opener(path)
        except (sqlite3.Error, OSError) as error:
            raise LedgerStorageError(path, "opening", error) from error
        reader = None
        try:
            number, fresh = await ledger_schema.prepare(db, path, device, epoch)
            went_back = "" if fresh else await ledger_schema.check_log(db, path, committed)
            reader = await opener(path)
            await reader.execute("PRAGMA query_only = 1")
            await reader.execute("PRAGMA cache_size = -256")
        except BaseException as error:
            for connection in (reader, db):
                if connection is not None:
                    await connection.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise LedgerStorageError(path, "opening", error) from error
            raise
        ledger = cls(path, opener, db, reader, number, budget, lanes)
        ledger.fresh, ledger.went_back = fresh, went_back
        try:
            await ledger._load()
        except LedgerCorruptError:
            await ledger.close()
            raise
        except sqlite3.Error as error:
            await ledger.close()
            if says_damaged(error) or lacks_tables(error):
                raise LedgerCorruptError(path, f"SQLite cannot read it: {error}") from error
            raise LedgerStorageError(path, "opening", error) from error
        return ledger

    def status(self) -> dict[str, Any]:
        """Return the ledger's part of the status; sizes in bytes."""
        return {
            "path": str(self.path),
            "bytes": self.budget.used,
            "bytes_max": self.budget.bytes_max,
            "full": self.budget.full,
            "disk_full": bool(self.budget.disk),
            "former_epochs_owed": len(
                {lane.epoch for lane in self.closed.values() if not lane.whole}
            ),
            "forgotten_messages": self.forgotten,
            "quarantined_rows": self.quarantined,
            "set_aside": ", ".join(map(str, asides(self.path))),
        }

    async def commit(self, changes: LedgerChanges) -> list[int]:
        """Write all of ``changes`` in one transaction, durable when this returns.

        Returns the ids of the new staged rows, in order.

        Raises:
            LedgerStorageError: nothing was written; the ledger stays usable.
        """
        try:
            if self._uncertain:
                await self._load()
                self._uncertain = False
                self._require(changes)
            plan = ledger_commit.plan(self, changes, self._next_staged_id)
            await ledger_commit.write(self._db, self, plan)
        except (sqlite3.Error, OSError) as error:
            self._uncertain = True
            await self._roll_back()
            raise self._failure("commit", error) from error
        self._apply(plan)
        if changes.settled or changes.evict:
            await self._measure_held()
        return [row[0] for row in plan.staged]

    def _require(self, changes: LedgerChanges) -> None:
        """Refuse changes that rest on an outdated view: a commit that failed was written after all."""
        if any(self.meta.get(name) != value for name, value in changes.expected.items()):
            raise LedgerStorageError(
                self.path, "commit", OSError("an earlier one was written after all")
            )

    def _apply(self, plan: ledger_commit.TransactionPlan) -> None:
        """Bring the values in memory in line with a transaction that was written."""
        for lane, seq in ledger_commit.watermarks_of(self, plan.changes):
            lane.watermark, lane.confirmed = seq, max(lane.confirmed, seq)
        for lane, steps, used_seq in plan.steps:
            lane.steps, lane.used_seq = steps, used_seq
        if plan.changes.opening is not None:
            self._close_epoch(plan)
        for name, seq in plan.next_seqs.items():
            self.lanes[name].next_seq = seq
        for lane in plan.entered:
            known = self.closed.setdefault((lane.name, lane.epoch), lane)
            known.next_seq, known.used_seq = lane.next_seq, lane.used_seq
            known.watermark, known.confirmed = lane.watermark, lane.confirmed
        by_id = {lane.id: lane for lane in self.every_lane()}
        for row in plan.rows:
            if row.boot and not by_id[row.lane].held_seq:
                by_id[row.lane].held_seq = row.seq
        for lane_id, end in plan.chains.items():
            by_id[lane_id].chain = end
        self.meta |= plan.changes.meta
        self.quarantined += len(plan.changes.quarantine)
        self._next_staged_id += len(plan.staged)
        self.budget.grew(plan.changes.weight)

    def _close_epoch(self, plan: ledger_commit.TransactionPlan) -> None:
        for lane in self.lanes.values():
            lane.used_seq = lane.last_seq
            self.closed[lane.name, lane.epoch] = lane
        for lane in plan.dropped:
            del self.closed[lane.name, lane.epoch]
        self.lanes.update(plan.lanes)  # in place: others hold it
        self.epoch = next(iter(plan.lanes.values())).epoch

    async def make_room(self) -> None:
        """Measure the ledger; where it is full, forget the oldest messages that the hub holds.

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
                await self._measure()

    async def measure(self) -> None:
        """Tell the budget the ledger's real size."""
        async with self._writing("measuring"):
            await self._measure()

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

    async def marks(self) -> list[AgeMark]:
        """Return when the ledger was how far."""
        async with self._writing("reading"):
            return await ledger_room.marks(self._db)

    async def write_mark(self, mark: AgeMark, oldest_ns: int) -> None:
        """Keep a mark, and none from before ``oldest_ns``."""
        async with self._writing("marking"):
            await ledger_room.write_mark(self._db, mark, oldest_ns)

    @asynccontextmanager
    async def _writing(self, operation: str) -> AsyncIterator[None]:
        """Roll back a failure on the commit task's connection, as one clear error."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._uncertain = True
            await self._roll_back()
            raise self._failure(operation, error) from error

    async def close(self) -> None:
        """Close both connections; the last one folds the WAL into the file."""
        await self._reader.close()
        await self._db.close()

    async def _measure_held(self) -> None:
        """Find again from where on lanes are held. Committed rows stay, if this fails."""
        try:
            for lane in [*self.lanes.values(), *self.closed.values()]:
                if lane.held_seq:
                    lane.held_seq = await ledger_boots.held(self._db, lane.id)
        except (sqlite3.Error, OSError):
            self._uncertain = True  # the next commit reads everything back first

    async def _load(self) -> None:
        """Read the lanes and counters back: at opening, and after a commit of unknown outcome."""
        if spoilt := await spoilt_rows(self._db):
            raise LedgerCorruptError(self.path, f"what it holds in {spoilt} makes no sense")
        meta = await self._db.execute_fetchall("SELECT name, value FROM meta")
        self.meta = {str(name): value for name, value in meta}
        self.epoch = int(self.meta["epoch"])
        self.dictionaries = await dictionary_rows.load(self._db)
        lanes = await ledger_lanes.load(self._db, self.epoch, self._lane_names)
        numbers = [n for lane in lanes for n in (lane.epoch, lane.next_seq, lane.used_seq)]
        if not all(isinstance(number, int) for number in numbers):
            raise LedgerCorruptError(self.path, "it does not say how far a lane is")
        await ledger_chain.load(self._db, lanes)
        self.lanes.update({lane.name: lane for lane in lanes if lane.epoch == self.epoch})
        if lost := set(self._lane_names) - self.lanes.keys():
            # The index has them: where the row says another name, none is made anew.
            raise LedgerCorruptError(self.path, f"it has no lane {', '.join(sorted(lost))}")
        if spoilt := await spoilt_lane(self._db):
            raise LedgerCorruptError(self.path, spoilt)
        self.closed = {(lane.name, lane.epoch): lane for lane in lanes if lane.epoch != self.epoch}
        for lane in self.closed.values():
            lane.used_seq = lane.last_seq  # as `_close_epoch` has it, whatever became of the row
        counts = await self._db.execute_fetchall(
            "SELECT (SELECT coalesce(max(id), 0) FROM staged), (SELECT count(*) FROM quarantined)"
        )
        last_staged, self.quarantined = next(iter(counts))
        self._next_staged_id = last_staged + 1
        await self._measure()

    async def _measure(self) -> None:
        try:
            self.budget.measured(*await ledger_room.measure(self._db))
        except (TypeError, ValueError) as error:
            raise LedgerCorruptError(self.path, f"what it holds cannot be told: {error}") from error

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
