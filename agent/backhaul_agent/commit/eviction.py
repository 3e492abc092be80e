"""Makes room in the ledger by the rule of `ledger.eviction_policy`, and keeps nothing longer than `ledger.age_index` says.

Only the commit task calls it, between commits: everything here is a commit of its own, and the
receipt for what goes is in the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.ledger.age_index import AgeMark
from backhaul_agent.ledger.eviction_policy import EVENT, victims
from backhaul_agent.ledger.rows import Evicted, LedgerChanges
from backhaul_agent.logs import Bursts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from backhaul_agent.ledger.age_index import Ages
    from backhaul_agent.ledger.disk_reserve import Reserve
    from backhaul_agent.ledger.eviction_policy import Candidate, Victims
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Outgoing
    from backhaul_runtime.clock import Clock

    # lane, epoch, lo, hi, reason, and the chain's hash at hi: the receipt that says so
    Receipt = Callable[[str, int, int, int, str, bytes | None], Outgoing]

IDLE_S = 60.0
RETAKE_S = 2.0  # between looks at a full disk
PAGE_ROWS = 1024
EVICT_ROWS = 4096  # in one transaction
SEARCH_ROWS = 16_384  # looked at for victims, before giving up
log = structlog.get_logger("budget")


class Eviction:
    """Forgets, evicts, and writes receipts. ``evicted`` counts messages since the start."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        ages: Ages,
        reserve: Reserve,
        receipt: Receipt,
        commit: Callable[[LedgerChanges], Awaitable[object]],
    ) -> None:
        self.evicted = 0
        self.ages = ages
        self.reserve = reserve
        self._ledger = ledger
        self._clock = clock
        self._upkeep_s = clock.monotonic_s()
        self._receipt = receipt
        self._commit = commit
        self._bursts = Bursts(clock)

    def upkeep_due_s(self) -> float:
        """Return when `upkeep` is due, on the monotonic clock."""
        return self._upkeep_s

    async def start(self) -> None:
        """Read the ages, and take the reserve; a disk that is full already is told at once.

        Raises:
            LedgerStorageError: the ledger cannot be read.
        """
        for mark in await self._ledger.marks():
            self.ages.add(mark)
        await self._keep_reserve()
        if not self.reserve.held and self.reserve.short:
            await self._confine()

    async def upkeep(self) -> bool:
        """Do what time alone asks for: ages, and taking the reserve back.

        Returns whether something was evicted.

        Raises:
            LedgerStorageError: the disk refused.
        """
        before = self.evicted
        await self._keep_reserve()
        await self._by_age()
        return self.evicted > before

    async def _keep_reserve(self) -> None:
        budget = self._ledger.budget
        wanting = bool(budget.disk or (self.reserve.size and not self.reserve.held))
        pause_s = RETAKE_S if wanting else IDLE_S
        if self.ages.age_s_max:
            pause_s = min(pause_s, self.ages.grain_s)
        # First: what the disk refuses now is not to be tried again at once.
        self._upkeep_s = self._clock.monotonic_s() + pause_s
        if wanting and await asyncio.to_thread(self.reserve.take) and budget.disk:
            await self._ledger.release()
            budget.restore()
            log.info("space_again", disk=self.reserve.place)

    async def relieve(self, newcomer: int, size: int) -> bool:
        """Make room for a commit of ``size`` bytes that the full disk refused.

        Returns whether it should be tried again: not where the disk has space after all, nor where
        nothing may go for the sake of class ``newcomer``.

        Raises:
            LedgerStorageError: there is not even space to delete; nothing can be kept.
        """
        budget = self._ledger.budget
        if not budget.disk and not self.reserve.short:
            return False
        self.reserve.release()
        with contextlib.suppress(LedgerStorageError):
            await self._ledger.fold()
        await self._confine()
        budget.press(size)
        try:
            await self._by_bytes(newcomer)
            return budget.refusal(newcomer) is None
        finally:
            budget.press(0)

    async def _confine(self) -> None:
        """Make do with the pages the file has."""
        if not self._ledger.budget.disk:
            log.error("no_space_left", disk=self.reserve.place)
        limit = await self._ledger.confine()
        self._ledger.budget.shrink(limit, self.reserve.place)
        await self._ledger.measure()
        self._upkeep_s = min(self._upkeep_s, self._clock.monotonic_s() + RETAKE_S)

    async def make(self, newcomer: int) -> bool:
        """Make room after a commit whose dearest content is of class ``newcomer``.

        Returns whether something was evicted: then receipts are new in the live lane.

        Raises:
            LedgerStorageError: the disk refused; what went so far has its receipts.
        """
        before = self.evicted
        if self._ledger.budget.due:
            await self._by_bytes(newcomer)
        return self.evicted > before

    async def _by_bytes(self, newcomer: int) -> None:
        ledger, budget = self._ledger, self._ledger.budget
        await ledger.make_room()
        if not budget.full:
            return
        for dearest in range(min(newcomer, EVENT) + 1) if budget.evicts else ():
            # One spell frees more than it must: what is short of that needs no second receipt.
            while ledger.budget.full and (found := await self._oldest(dearest)).ids:
                await self._evict(found, "evicted: ledger full")
                await ledger.measure()
        if budget.full:
            budget.stuck(newcomer)

    async def _oldest(self, dearest: int) -> Victims:
        """Return the oldest messages up to a class, enough of them or as many as one commit takes."""
        ledger, wanted = self._ledger, self._ledger.budget.excess
        chosen: list[Candidate] = []
        found = victims((), {}, wanted)
        after_id = 0
        while found.bytes < wanted and len(found.ids) < EVICT_ROWS and len(chosen) < SEARCH_ROWS:
            page = await ledger.oldest(dearest, after_id, PAGE_ROWS)
            if not page:
                break
            after_id = page[-1].id
            chosen += page
            found = victims(chosen, await ledger.present(chosen), wanted)
        return found

    async def _by_age(self) -> None:
        if not self.ages.age_s_max or not getattr(self._clock, "settled", True):
            return
        ledger, now_ns = self._ledger, self._clock.now_ns()
        if self.ages.due(now_ns):
            lanes = [*ledger.lanes.values(), *ledger.closed.values()]
            mark = AgeMark(now_ns, {lane.id: lane.next_seq for lane in lanes})
            self.ages.add(mark)
            await ledger.write_mark(mark, self.ages.marks[0].time_ns)
        seqs = self.ages.expired(now_ns)
        reason = f"evicted: older than {self.ages.age_s_max:g} s"
        while old := await ledger.before(seqs, EVENT, EVICT_ROWS):
            everything = sum(row.cost for row in old)
            found = victims(old, await ledger.present(old), everything, worthwhile=False)
            await self._evict(found, reason)

    async def _evict(self, found: Victims, reason: str) -> None:
        """Delete, and say so, in one transaction."""
        ledger = self._ledger
        by_id = {lane.id: lane for lane in [*ledger.lanes.values(), *ledger.closed.values()]}
        changes = LedgerChanges(evict=found.ids)
        for lane_id, lo, hi in found.spans:
            lane = by_id[lane_id]
            changes.evicted.append(Evicted(lane_id, lo, hi, reason))
            chain = await ledger.hash_at(lane, hi)
            changes.messages.append(self._receipt(lane.name, lane.epoch, lo, hi, reason, chain))
        await self._commit(changes)
        gone = sum(hi - lo + 1 for _, lo, hi in found.spans)
        self.evicted += gone
        if count := self._bursts.note(reason, gone):
            log.warning("unconfirmed_messages_evicted", messages=count, reason=reason)
