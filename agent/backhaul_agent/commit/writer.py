"""The one task that writes the ledger: natural group commit.

A publisher that waits for "kept" is committed at once; whatever arrives while that commit runs goes
into the next one. So one client alone gets the latency of one fsync, and a thousand share it. Points
nobody waits for are committed at the latest after `ingest.stage_s_max`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.commit.deferred_writes import Owed
from backhaul_agent.commit.epoch_gate import EpochGate
from backhaul_agent.commit.eviction import Room
from backhaul_agent.commit.framer import Framer, value_class, worth
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.commit.marks import mark_body
from backhaul_agent.commit.queues import heads_in, points_in
from backhaul_agent.errors import Code, LedgerStorageError, RefusedError
from backhaul_agent.hub_time.hub_clock import HubClock, Quality
from backhaul_agent.ledger.age_index import Ages
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.eviction_policy import TELEMETRY, class_of
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import (
    STAGED,
    Changes,
    Inward,
    LaneStep,
    Outgoing,
    Quarantine,
)
from backhaul_agent.ledger.system_events import event, receipt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from backhaul_agent.clock import Clock
    from backhaul_agent.commit.heads import Changed, HeadChanges
    from backhaul_agent.commit.marks import Marks
    from backhaul_agent.commit.queues import Arrival
    from backhaul_agent.config import Config
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import StagedRow

RETRY_S = 1.0  # between attempts to write what nobody can be refused: watermarks, receipts, frames
log = structlog.get_logger("writer")


@dataclass(slots=True)
class Counters:
    """What the writer has done since the start."""

    points_kept: int = 0
    points_refused: int = 0
    commits: int = 0
    commits_failed: int = 0
    frames: int = 0
    last_error: str = ""


class Writer:
    """Collects arrivals, commits them in groups, answers them, and tells the lanes."""

    def __init__(
        self,
        ledger: Ledger,
        config: Config,
        clock: Clock,
        *,
        on_commit: Callable[[], None],
        reserve: Reserve | None = None,
        marks: Marks | None = None,
        lanes: Lanes | None = None,
        gate: EpochGate | None = None,
    ) -> None:
        self.counters = Counters()
        self._clock = clock = HubClock.of(clock)
        self.gate = gate or EpochGate(ledger, clock)
        self._lanes = lanes or Lanes()
        self.keeper = HeadKeeper(
            *(config.device.id, clock.time_ns, clock.reach, self._lanes),
            synced=lambda: clock.quality is Quality.SYNCED,
        )
        self.on_heads: list[Callable[[list[Changed]], None]] = []  # told of heads that changed
        self.on_commands: Callable[[], None] = lambda: None  # told when some were committed
        self._ledger = ledger
        self._limits = config.ingest
        self._on_commit = on_commit
        self._framer = Framer(config.frame)
        reserve = reserve or Reserve(ledger.path, 0)
        ages = Ages(config.ledger.age_s_max)
        self._marks = marks
        self.room = Room(ledger, clock, ages, reserve, self._receipt, self._commit_own)
        self._pending: list[Arrival] = []
        self._pending_bytes = 0
        self._waiting = 0
        self._stage_by_s: float | None = None
        self._owed = Owed()
        self._taken = Owed()  # what the last commit took along: it may not be written yet
        self._newest_frames: dict[str, bytes] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._retry_at_s = 0.0

    @property
    def buffered_points(self) -> int:
        """Return how many acknowledged points are staged but not framed."""
        return self._framer.buffered_points + self.gate.suspects.points

    async def restore(self) -> None:
        """Take heads and staged rows back into memory; set aside staged rows that are damaged.

        Raises:
            LedgerStorageError: the ledger cannot be read.
        """
        self.keeper.restore(await self._ledger.heads(), self._ledger.meta)
        await self.room.start()
        for row in await self.gate.restore():
            self._lose(row)
        self._take_back()

    def _take_back(self) -> None:
        """Let staged rows that are no suspects (any more) be framed."""
        now_s = self._clock.monotonic_s()
        for row, points in self.gate.cleared():
            self._framer.restore(row.node, row.id, points, now_s, row.boot, row.clock)

    def submit(self, arrival: Arrival) -> None:
        """Queue points for the next commit.

        Raises:
            RefusedError: stopping, busy, or no room for its like; nothing was queued.
        """
        limits = self._limits
        if self._stopping:
            raise RefusedError(Code.STOPPING, "the agent is stopping")
        if (
            len(self._pending) >= limits.pending_messages_max
            or self._pending_bytes + arrival.size > limits.pending_bytes_max
        ):
            raise RefusedError(Code.BUSY, "more arrives than the disk takes: try again shortly")
        budget = self._ledger.budget
        if budget.full and (refusal := budget.refusal(value_class(arrival.content))):
            raise refusal
        self._pending.append(arrival.marked(self._clock.mark))
        self._pending_bytes += arrival.size
        # Half full is a reason to commit too: a burst that nobody waits for must not be refused
        # while the disk is idle.
        crowded = (
            2 * len(self._pending) >= limits.pending_messages_max
            or 2 * self._pending_bytes >= limits.pending_bytes_max
        )
        if arrival.waited_for or crowded:
            self._waiting += 1
            self._wake.set()
        elif self._stage_by_s is None:
            self._stage_by_s = self._clock.monotonic_s() + limits.stage_s_max
            self._wake.set()  # so that the waiting commit task learns the new deadline

    def set_watermark(self, name: str, seq: int, epoch: int = 0) -> None:
        """Record what the hub holds of a lane, with the next commit; it may be less than before."""
        lane = self._ledger.lane(name, epoch)
        if lane is None:
            return
        place = name, lane.epoch
        taken = self._taken.watermarks.get(place, lane.watermark)
        known = self._owed.watermarks.get(place, taken)
        if seq < known and self._marks is not None:
            self._marks.watermark_fell()
        if seq != known:
            self._owed.watermarks[place] = seq
            self._wake.set()

    def wake(self) -> None:
        """Look again at what is to be done."""
        self._wake.set()

    def note_step(self, step: LaneStep) -> None:
        """Record a step downwards of a lane's stream, with the next commit."""
        self._owed.steps.append(step)
        self._wake.set()

    async def set_step(self, step: LaneStep) -> None:
        """Record a step of a lane's stream; returns when it is durable."""
        self.note_step(step)
        await self._done()

    def note_used(self, lane: str, seq: int) -> None:
        """Record that seqs up to ``seq`` may be sent, with the next commit."""
        self._owed.used[lane] = seq
        self._wake.set()

    async def set_used(self, lane: str, seq: int) -> None:
        """Record that seqs up to ``seq`` may be sent; returns when it is durable."""
        self.note_used(lane, seq)
        await self._done()

    async def set_aside(self, rows: list[Quarantine], receipts: list[Outgoing]) -> None:
        """Quarantine rows and commit the receipts that explain them; returns when it is durable."""
        self._owed.quarantine += rows
        self._owed.messages += self._own(receipts)
        await self._done()

    async def _done(self) -> None:
        """Have what is owed committed, and wait until it is durable."""
        done = asyncio.get_running_loop().create_future()
        self._owed.done.append(done)
        self._wake.set()
        await done

    async def all_written(self) -> None:
        """Return when all that was handed in before is durable, also by callers that wait no longer."""
        await self._done()

    async def apply(self, changes: Inward) -> None:
        """Commit what follows from messages of the hub; returns when that is durable.

        Tried again until the disk takes it, also where the caller no longer waits.
        """
        done = asyncio.get_running_loop().create_future()
        changes.messages = self._own(changes.messages)
        self._owed.inbound.append(changes)
        self._owed.done.append(done)
        self._wake.set()
        await done

    def tell(self, *events: Outgoing) -> None:
        """Have events of the agent's own committed next; hand them over as soon as they are stamped."""
        self._owed.messages += self._own(events)
        self._wake.set()

    def take_newest_frames(self) -> list[bytes]:
        """Return each node's newest frame since this was asked last, of those with settled stamps."""
        frames, self._newest_frames = self._newest_frames, {}
        return list(frames.values())

    async def cut_marked(self) -> None:
        """Return when whatever still waits for a time is a message, and nothing is staged so."""
        await self._done()

    def stop(self) -> None:
        """Refuse what comes from now on; `run` commits what is there, framed, and returns."""
        self._stopping = True
        self._wake.set()

    def _lose(self, row: StagedRow) -> None:
        """Set a damaged staged row aside; it has no seq, so an event tells the hub, not a receipt."""
        reason = f"staged row {row.id} of node {row.node!r}, {row.points} points: corrupt"
        log.error("ledger row quarantined", reason=reason)
        self._owed.quarantine.append(Quarantine(STAGED, row.id, reason))
        lost = {"node": row.node, "points": row.points, "reason": "corrupt"}
        self.tell(event("quarantined", lost, self._clock.time_ns()))

    async def run(self) -> None:
        """Commit until `stop`. Cancelling loses what was not acknowledged, and nothing else."""
        while True:
            await self._wait()
            stopping = self._stopping
            if stopping and self.gate.waiting and not self._pending:
                return  # nothing that a new epoch would be worth
            if stopping and self._marks is not None:
                self._marks.stop()
            await self._commit(flush=stopping or self._ledger.budget.full)
            if self._clock.monotonic_s() >= self.room.upkeep_due_s():
                await self._give_up(self.room.upkeep())
            if stopping and not self._pending:
                return

    async def _wait(self) -> None:
        """Sleep until there is something to commit."""
        while not self._due():
            self._wake.clear()
            times = [self._stage_by_s, self.gate.epochs.due_s()]
            if not self.gate.waiting:
                times += [
                    self._framer.deadline_s(),
                    self.room.upkeep_due_s(),
                    self._marks.next_s() if self._marks is not None else None,
                ]
                if self._owed:
                    times.append(self._retry_at_s)
            next_s = min((time for time in times if time is not None), default=None)
            wait_s = None
            if next_s is not None:
                wait_s = max(next_s, self._retry_at_s) - self._clock.monotonic_s()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _due(self) -> bool:
        now_s = self._clock.monotonic_s()
        staging = self._stage_by_s is not None and self._stage_by_s <= now_s
        urgent = bool(self._waiting or (self._pending and (staging or self._stopping)))
        if not self.gate.epochs.may_commit(now_s, urgent=urgent):
            return self._stopping and not self._pending
        if urgent or self._stopping or now_s >= self.room.upkeep_due_s():
            return True
        deadline_s = self._framer.deadline_s()
        framing = deadline_s is not None and deadline_s <= now_s
        owed = framing or self.gate.due or bool(self._owed) or bool(self._mark_due())
        return owed and now_s >= self._retry_at_s

    async def _commit(self, *, flush: bool) -> None:
        arrivals, self._pending = self._pending, []
        self._pending_bytes, self._waiting, self._stage_by_s = 0, 0, None
        owed = self._taken = self._owed
        self._owed = Owed()
        now_s = self._clock.monotonic_s()
        self._take_back()
        why = self._mark_due()
        sent = self.gate.suspects.take_sent()
        contents = [*sent.rest, *(arrival.content for arrival in arrivals)]
        mark = self._clock.mark
        plan = self._framer.plan(contents, now_s, flush=flush or bool(why), mark=mark)
        changes = plan.changes
        changes.unstage += sent.ids
        owed.add_to(changes)
        changes.boots = list(self._clock.unwritten.values())
        changes.time_ns = self._clock.time_ns()
        self.gate.open(changes)
        heads = self._merge(arrivals, owed, changes)
        if why:
            changes.mark = partial(_mark, why, changes.time_ns, mark)
        if not changes:
            owed.settle()
            return
        try:
            staged_ids = await self._keep(changes)
        except LedgerStorageError as error:
            self.gate.suspects.put_back(sent)
            self._failed(arrivals, owed, error)
            return
        self._framer.applied(plan, staged_ids)
        self.gate.opened(changes)
        self._clock.written(changes.boots)
        if why and self._marks is not None:
            self._marks.marked(changes.time_ns)
        if changed := heads.apply():
            for tell in self.on_heads:
                tell(changed)
        self._succeeded(arrivals, owed, changes)
        if plan.lost_points:
            log.error("points could not be framed and are lost", points=plan.lost_points)
        await self._give_up(self.room.make(worth(changes.messages)))

    async def _commit_own(self, changes: Changes) -> None:
        """Commit what making room wants, by the same rule as everything else."""
        self.gate.open(changes)
        await self._ledger.commit(changes)
        if self.gate.opened(changes):
            self._on_commit()

    def _merge(self, arrivals: list[Arrival], owed: Owed, changes: Changes) -> HeadChanges:
        """Add to ``changes`` what they do to the heads; all its messages are in their lanes then."""
        heads = self.keeper.begin()
        for arrival in arrivals:
            heads.write(heads_in(arrival.content))
        for inbound in owed.inbound:
            heads.receive(inbound)
        changes.messages[:0] = self._own(heads.seen(changes.time_ns))
        changes.heads = heads.rows()
        changes.meta |= heads.meta()
        changes.messages = [self._lanes.place(message) for message in changes.messages]
        return heads

    def _succeeded(self, arrivals: list[Arrival], owed: Owed, changes: Changes) -> None:
        counters = self.counters
        counters.commits += 1
        for message in changes.messages:
            if class_of(message.subject) == TELEMETRY:
                counters.frames += 1
                if not message.boot:
                    self._newest_frames[message.subject] = message.body
        if counters.last_error:
            log.info("ledger writes again", after=counters.last_error)
            counters.last_error = ""
        for arrival in arrivals:
            counters.points_kept += points_in(arrival.content)
            arrival.answer(arrival.content, None)
        owed.settle()
        if changes.commands:
            self.on_commands()
        self._on_commit()

    def _failed(self, arrivals: list[Arrival], owed: Owed, error: LedgerStorageError) -> None:
        """Refuse what came from outside; keep what the agent owes for another attempt."""
        counters = self.counters
        counters.commits_failed += 1
        self._trouble(error)
        self._retry_at_s = self._clock.monotonic_s() + RETRY_S
        owed.put_behind(self._owed)
        self._owed = owed
        reason = f"{error.operation} failed: {error.cause}"
        if error.disk_full:
            reason = f"{self.room.reserve.place} is full ({reason})"
        refusal = RefusedError(Code.STORAGE, f"nothing was kept: {reason}")
        for arrival in arrivals:
            counters.points_refused += points_in(arrival.content)
            arrival.answer(arrival.content, refusal)

    async def _keep(self, changes: Changes) -> list[int]:
        """Commit; where the disk is full, make room by the rule and try once more."""
        try:
            return await self._ledger.commit(changes)
        except LedgerStorageError as error:
            if not error.disk_full:
                raise
            before = self.room.evicted
            again = await self.room.relieve(worth(changes.messages), changes.weight)
            if self.room.evicted > before:
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

    def _receipt(
        self, lane: str, epoch: int, lo: int, hi: int, reason: str, chain: bytes | None
    ) -> Outgoing:
        return self._own([receipt(lane, epoch, lo, hi, reason, self._clock.time_ns(), chain)])[0]

    def _own(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Mark events and results, stamped by the agent, while their stamps must be put right later.

        Called where they are handed in, in the same turn in which they were stamped.
        """
        mark = self._clock.mark
        if not mark:
            return list(messages)
        return [
            message._replace(boot=mark) if message.subject.startswith(("e.", "r.")) else message
            for message in messages
        ]

    def _mark_due(self) -> str:
        return self._marks.due() if self._marks is not None else ""

    def link_up(self) -> None:
        """Have a mark written: the link came up."""
        if self._marks is not None:
            self._marks.link_up()
        self._wake.set()

    def _trouble(self, error: LedgerStorageError) -> None:
        """Log a failing disk once, until it heals."""
        if not self.counters.last_error:
            log.error("ledger does not write", error=str(error))
        self.counters.last_error = str(error)


def _mark(
    why: str, time_ns: int, boot: int, epoch: int, last_seqs: dict[str, int], hashes: dict[str, str]
) -> Outgoing:
    return event("mark", mark_body(epoch, last_seqs, hashes, why), time_ns)._replace(boot=boot)
