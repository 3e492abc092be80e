"""The agent's own writes for the next commit: they are retried, never refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.ledger.rows import STAGED, Quarantine
from backhaul_agent.ledger.system_events import event, marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.errors import RefusedError
    from backhaul_agent.hub_time.hub_clock import HubClock
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Inward, LaneStep, LedgerChanges, Outgoing, StagedRow

log = structlog.get_logger("writer")


@dataclass(slots=True)
class OwedWrites:
    """Everything that was handed in and is not durable yet."""

    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    steps: list[LaneStep] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)
    quarantine: list[Quarantine] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    inbound: list[Inward] = field(default_factory=list)
    done: list[asyncio.Future[None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    def add_to(self, changes: LedgerChanges) -> None:
        """Have all of it written with ``changes``, but for what the hub's messages do to heads."""
        changes.messages += self.messages
        changes.former = self.watermarks
        changes.steps = self.steps
        if changes.opening is None:  # else they are of lanes that are closed now
            changes.used = self.used
        changes.quarantine = self.quarantine
        for inbound in self.inbound:
            changes.meta |= inbound.meta
            for name in ("messages", "settled", "commands", "evict", "evicted", "adopted"):
                getattr(changes, name).extend(getattr(inbound, name))

    def merge_newer(self, newer: OwedWrites) -> None:
        """Take in the writes that have come since this was tried, and failed."""
        self.watermarks.update(newer.watermarks)  # the newer word counts
        self.used.update(newer.used)
        for name in ("steps", "quarantine", "messages", "inbound", "done"):
            getattr(self, name).extend(getattr(newer, name))

    def settle(self) -> None:
        """Tell all waiting parts that it is durable."""
        for inbound in self.inbound:
            for tell in inbound.on_durable:
                tell()
        for future in self.done:
            if not future.done():
                future.set_result(None)


class DeferredWrites(CommitParticipant):
    """Takes in writes of other parts of the agent, and the boots that stamps wait for.

    ``wake`` has the commit task look again. ``on_fall`` is told that the hub has lost something.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: HubClock,
        wake: Callable[[], None],
        on_fall: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._wake = wake
        self._on_fall = on_fall
        self._owed = OwedWrites()
        self._taken = OwedWrites()  # what the last commit took along: it may not be written yet

    def set_watermark(self, name: str, seq: int, epoch: int = 0) -> None:
        """Record what the hub holds of a lane, with the next commit; it may be less than before."""
        lane = self._ledger.lane(name, epoch)
        if lane is None:
            return
        place = name, lane.epoch
        taken = self._taken.watermarks.get(place, lane.watermark)
        known = self._owed.watermarks.get(place, taken)
        if seq < known:
            self._on_fall()
        if seq != known:
            self._owed.watermarks[place] = seq
            self._wake()

    def note_step(self, step: LaneStep) -> None:
        """Record a step downwards of a lane's stream, with the next commit."""
        self._owed.steps.append(step)
        self._wake()

    async def set_step(self, step: LaneStep) -> None:
        """Record a step of a lane's stream; returns when it is durable."""
        self.note_step(step)
        await self.all_written()

    def note_used(self, lane: str, seq: int) -> None:
        """Record that seqs up to ``seq`` may be sent, with the next commit."""
        self._owed.used[lane] = seq
        self._wake()

    async def set_used(self, lane: str, seq: int) -> None:
        """Record that seqs up to ``seq`` may be sent; returns when it is durable."""
        self.note_used(lane, seq)
        await self.all_written()

    async def set_aside(self, rows: list[Quarantine], receipts: list[Outgoing]) -> None:
        """Quarantine rows and commit the receipts that explain them; returns when it is durable."""
        self._owed.quarantine += rows
        self._owed.messages += marked(receipts, self._clock.mark)
        await self.all_written()

    def lose(self, row: StagedRow) -> None:
        """Set a damaged staged row aside; it has no seq, so an event tells the hub, not a receipt."""
        reason = f"staged row {row.id} of node {row.node!r}, {row.points} points: corrupt"
        log.error("ledger_row_quarantined", reason=reason)
        self._owed.quarantine.append(Quarantine(STAGED, row.id, reason))
        lost = {"node": row.node, "points": row.points, "reason": "corrupt"}
        self.tell(event("quarantined", lost, self._clock.now_ns()))

    async def apply(self, changes: Inward) -> None:
        """Commit what follows from messages of the hub; returns when that is durable.

        Tried again until the disk takes it, also where the caller no longer waits.
        """
        changes.messages = marked(changes.messages, self._clock.mark)
        self._owed.inbound.append(changes)
        await self.all_written()

    def tell(self, *events: Outgoing) -> None:
        """Have events of the agent's own committed next; hand them over as soon as they are stamped."""
        self._owed.messages += marked(events, self._clock.mark)
        self._wake()

    async def all_written(self) -> None:
        """Return when all that was handed in before is durable, also by callers that wait no longer.

        Then nothing is staged that waits for a time, either: it is in messages.
        """
        done = asyncio.get_running_loop().create_future()
        self._owed.done.append(done)
        self._wake()
        await done

    def due_s(self) -> float | None:
        """Return that it is due if anything was handed in."""
        return AT_ONCE_S if self._owed else None

    def contribute(self, draft: Draft) -> None:
        """Have everything written."""
        self._taken, self._owed = self._owed, OwedWrites()
        self._taken.add_to(draft.changes)
        draft.changes.boots = list(self._clock.unwritten.values())
        draft.received += self._taken.inbound
        draft.on_durable.append(self._taken.settle)

    def committed(self, draft: Draft) -> None:
        """Take in that the boots are known to the ledger."""
        self._clock.written(draft.changes.boots)

    def put_back(self, refusal: RefusedError) -> None:
        """Keep everything for the next commit, before what has come meanwhile."""
        self._taken.merge_newer(self._owed)
        self._owed = self._taken
