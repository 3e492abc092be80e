"""The one task that writes the ledger: natural group commit.

The loop commits at once for a publisher that waits for "kept"; points that arrive while that commit runs go
into the next one. So one client alone gets the latency of one fsync, and a thousand share it. Points
nobody waits for are committed at the latest after `ingest.stage_s_max`.

The participants (`commit.participant`) say what to write, when a commit must begin, and when none may; the loop knows
none of them by name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.cancellation import heard
from backhaul_agent.commit.contents import worth
from backhaul_agent.commit.participant import Draft
from backhaul_agent.errors import Code, LedgerStorageError, RefusedError
from backhaul_agent.ledger.rows import LedgerChanges

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from backhaul_agent.commit.eviction import Eviction
    from backhaul_agent.commit.participant import CommitParticipant
    from backhaul_agent.commit.queues import Counters
    from backhaul_agent.hub_time.hub_clock import HubClock
    from backhaul_agent.ledger.ledger import Ledger

RETRY_S = 1.0  # between attempts to write what nobody can be refused: watermarks, receipts, frames
log = structlog.get_logger("writer")


class CommitLoop:
    """Commits the writes of its participants, in groups, and makes room. ``on_commit`` is told of each commit."""

    def __init__(
        self,
        ledger: Ledger,
        clock: HubClock,
        participants: Iterable[CommitParticipant],
        *,
        eviction: Eviction,
        counters: Counters,
        on_commit: Callable[[], None],
    ) -> None:
        self.eviction = eviction
        self.counters = counters
        self._participants = list(participants)
        self._clock = clock
        self._ledger = ledger
        self._on_commit = on_commit
        self._wake = asyncio.Event()
        self._stopping = False
        self._retry_at_s = 0.0

    def join(self, participant: CommitParticipant) -> None:
        """Have one more part take part in commits, after all others; before `run`."""
        self._participants.append(participant)

    def wake(self) -> None:
        """Have the commit task look again."""
        self._wake.set()

    def stop(self) -> None:
        """Refuse every publish from now on; `run` commits the rest, framed, and returns."""
        self._stopping = True
        for each in self._participants:
            each.close()
        self._wake.set()

    async def run(self) -> None:
        """Commit until `stop`. Cancelling loses unacknowledged writes, and nothing else."""
        while True:
            await self._wait()
            stopping = self._stopping
            if stopping and self._held() and not self._pressed():
                return  # nothing that a new epoch would be worth
            await self._commit(flush=stopping or self._ledger.budget.full)
            if self._clock.monotonic_s() >= self.eviction.upkeep_due_s():
                await self._give_up(self.eviction.upkeep())
            if stopping and not self._pressed():
                return

    async def _wait(self) -> None:
        """Sleep until there is something to commit."""
        while not self._due():
            self._wake.clear()
            now_s, next_s = self._clock.monotonic_s(), self._next_s()
            wait_s = max(next_s, self._retry_at_s) - now_s if next_s is not None else None
            await heard(self._wake, wait_s)

    def _next_s(self) -> float | None:
        """Return when to look again; called where nothing is due."""
        now_s = self._clock.monotonic_s()
        times = [each.holds_until_s() for each in self._participants]
        # One that is over already, while commits are held, says nothing new.
        times += [time for time in self._must_by() if time > now_s]
        if not self._held():
            times += [self.eviction.upkeep_due_s(), *(each.due_s() for each in self._participants)]
        return min((time for time in times if time is not None), default=None)

    def _must_by(self) -> list[float]:
        times = (each.must_by_s() for each in self._participants)
        return [time for time in times if time is not None]

    def _pressed(self) -> bool:
        """Whether a commit must begin."""
        now_s = self._clock.monotonic_s()
        return any(time <= now_s for time in self._must_by())

    def _held(self) -> bool:
        """Whether no commit may begin."""
        now_s, pressed = self._clock.monotonic_s(), self._pressed()
        return any(each.holds(now_s, pressed=pressed) for each in self._participants)

    def _due(self) -> bool:
        pressed = self._pressed()
        if self._held():
            return self._stopping and not pressed
        now_s = self._clock.monotonic_s()
        if pressed or self._stopping or now_s >= self.eviction.upkeep_due_s():
            return True
        times = (each.due_s() for each in self._participants)
        return any(time is not None and max(time, self._retry_at_s) <= now_s for time in times)

    async def _commit(self, *, flush: bool) -> None:
        clock = self._clock
        changes = LedgerChanges(time_ns=clock.now_ns())
        draft = Draft(changes, clock.monotonic_s(), clock.mark, self._stopping, flush)
        for each in self._participants:
            each.contribute(draft)
        if changes:
            try:
                draft.staged_ids = await self._keep(changes)
            except LedgerStorageError as error:
                self._failed(error)
                return
            self._succeeded(draft)
        for tell in draft.on_durable:
            tell()
        if changes:
            self._on_commit()
            await self._give_up(self.eviction.make(worth(changes.messages)))

    def _succeeded(self, draft: Draft) -> None:
        for each in self._participants:
            each.committed(draft)
        self.counters.commits += 1
        if self.counters.last_error:
            log.info("ledger_writes_again", after=self.counters.last_error)
            self.counters.last_error = ""

    def _failed(self, error: LedgerStorageError) -> None:
        """Refuse programs' publishes; keep the agent's own writes for another attempt."""
        self.counters.commits_failed += 1
        self._trouble(error)
        self._retry_at_s = self._clock.monotonic_s() + RETRY_S
        reason = f"{error.operation} failed: {error.cause}"
        if error.disk_full:
            reason = f"{self.eviction.reserve.place} is full ({reason})"
        refusal = RefusedError(Code.STORAGE, f"nothing was kept: {reason}")
        for each in self._participants:
            each.put_back(refusal)

    async def _keep(self, changes: LedgerChanges) -> list[int]:
        """Commit; where the disk is full, make room by the rule and try once more."""
        try:
            return await self._ledger.commit(changes)
        except LedgerStorageError as error:
            if not error.disk_full:
                raise
            before = self.eviction.evicted
            again = await self.eviction.relieve(worth(changes.messages), changes.weight)
            if self.eviction.evicted > before:
                self._on_commit()
            if not again:
                raise
        return await self._ledger.commit(changes)

    async def _give_up(self, work: Awaitable[bool]) -> None:
        """Let the room be looked after; receipts that come of it are for the lanes to send."""
        try:
            evicted = await work
        except LedgerStorageError as error:
            self._trouble(error)
            return
        if evicted:
            self._on_commit()

    def _trouble(self, error: LedgerStorageError) -> None:
        """Log a failing disk once, until it heals."""
        if not self.counters.last_error:
            log.error("ledger_write_failed", error=str(error))
        self.counters.last_error = str(error)
