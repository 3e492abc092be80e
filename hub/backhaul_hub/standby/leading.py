"""The journal of the machine that leads: each transaction is stored there first, then committed (ADR 50).

hub.db is never ahead of the journal. Whatever leaves that open ends the term: this machine then takes back what it
has not committed, and follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from backhaul_hub.db.change import RowChange
from backhaul_hub.errors import DeposedError
from backhaul_hub.standby.entry import Entry, messages_of, rows_of
from backhaul_hub.standby.judgement import DoubtVerdict
from backhaul_hub.standby.rows import Term, go_on
from backhaul_hub.standby.stream import JournalStream
from backhaul_runtime.clock import Clock

if TYPE_CHECKING:
    import aiosqlite

log = structlog.get_logger(__name__)

BEAT_S = 1.0
LEFT = "this machine has left"
# For the end of a commit that nobody awaits any more, and for the word that this machine leaves.
_END_S = 2.0


class LeadersJournal:
    """Ships the transactions of one term, and beats while there are none.

    Args:
        stream: the journal, over a connection that is not of the term: it outlives that.
        term: the term that has begun.
        schema: of hub.db.
        position: the last sequence of the journal.
        new_nonce: returns a text that no other entry has.
        clock: for how long nothing was written.
    """

    def __init__(
        self,
        stream: JournalStream,
        term: Term,
        schema: int,
        position: int,
        new_nonce: Callable[[], str],
        clock: Clock,
    ) -> None:
        self.term = term
        self.position = position
        self.why = ""
        """Why the term is over; empty: it is not."""
        self.entries = 0
        """The transactions shipped in this term."""
        self._over = asyncio.Event()
        self._stream = stream
        self._schema = schema
        self._new_nonce = new_nonce
        self._clock = clock
        self._turn = asyncio.Lock()
        self._stored_s = clock.monotonic_s()

    async def commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        """Ship the open transaction, then commit it: also for a caller that is cancelled.

        Raises:
            DeposedError: this machine leads no more.
            sqlite3.Error: SQLite refused, which ends the term where the journal has it already.
        """
        work = asyncio.ensure_future(self._commit(connection, changes, changed))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # A commit whose end nobody knows would leave hub.db behind the journal.
            await asyncio.wait([work], timeout=_END_S)
            raise
        finally:
            if not work.done():
                self.end("an entry was in doubt when it was given up")
                work.cancel()
            work.add_done_callback(_seen)

    async def beat(self) -> None:
        """Write a beat whenever nothing was written for a second; return when the term is over."""
        while not self._over.is_set():
            idle_s = self._clock.monotonic_s() - self._stored_s
            if idle_s >= BEAT_S and not self._turn.locked():
                await self._say(Entry("beat", self._new_nonce(), self.term.machine))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, BEAT_S - idle_s)):
                    await self._over.wait()

    async def leave(self, to: str) -> None:
        """Tell the machines that follow that one of them is to lead: `to`, or any; nothing is written after that."""
        if self._over.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._say(Entry("leave", self._new_nonce(), self.term.machine, to=to))
        self.end(LEFT)

    def silent_s(self) -> float:
        """Return for how long the journal has acknowledged nothing, in seconds."""
        return self._clock.monotonic_s() - self._stored_s

    def end(self, why: str) -> None:
        """End the term, for the first reason that there is."""
        if not self._over.is_set():
            self.why = why
            log.warning("term_over", term=self.term.seq, why=why)
        self._over.set()

    async def _commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        if not changes:
            await connection.execute("COMMIT")
            return
        entry = Entry(
            *("rows", self._new_nonce(), self.term.machine, self._schema),
            *(rows_of(changes), changed),
        )
        async with self._turn:
            await self._ship(entry)
            self.entries += 1
            try:
                place = go_on(self.position)
                await connection.executemany(place.statement, place.rows)
                await connection.execute("COMMIT")
            except BaseException:
                self.end("hub.db could not commit what the journal has")
                raise

    async def _say(self, entry: Entry) -> None:
        with suppress(DeposedError):
            async with self._turn:
                await self._ship(entry)

    async def _ship(self, entry: Entry) -> None:
        """Store an entry. Raises: DeposedError."""
        if self._over.is_set():
            raise DeposedError(f"this machine leads the hub no more: {self.why}")
        bodies = messages_of(entry)
        try:
            verdict, seq = await self._stream.store(bodies, entry.nonce, self.position)
        except BaseException:
            self.end("an entry was in doubt")
            raise
        if verdict is not DoubtVerdict.STORED:
            lost = "the journal ends before what hub.db holds"
            self.end(lost if verdict is DoubtVerdict.LOST else "another machine leads")
            raise DeposedError(f"this machine leads the hub no more: {self.why}")
        self.position, self._stored_s = seq, self._clock.monotonic_s()


def _seen(work: asyncio.Future[None]) -> None:
    """Take note of an error that nobody awaits any more."""
    if not work.cancelled():
        work.exception()
