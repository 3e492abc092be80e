"""The writer, to which all other parts of the agent hand their writes: the commit loop and its participants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.bundle_packer import BundlePacker
from backhaul_agent.commit.commit_loop import CommitLoop
from backhaul_agent.commit.deferred_writes import DeferredWrites
from backhaul_agent.commit.epoch_gate import EpochGate
from backhaul_agent.commit.eviction import Eviction
from backhaul_agent.commit.framer import Framer
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.commit.queues import Counters, PublishQueues
from backhaul_agent.hub_time.hub_clock import HubClock, Quality
from backhaul_agent.ledger.age_index import Ages
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.system_events import marked, receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.commit.marks import Marks
    from backhaul_agent.config import Config
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
    from backhaul_runtime.clock import SteadyClock


class Writer(CommitLoop):
    """The loop with the participants that every agent has.

    Other parts hand in points with `submit`, and what the agent itself wants written with the methods
    of `DeferredWrites`.
    """

    def __init__(
        self,
        ledger: Ledger,
        config: Config,
        clock: SteadyClock,
        *,
        on_commit: Callable[[], None],
        reserve: Reserve | None = None,
        marks: Marks | None = None,
        lanes: Lanes | None = None,
        gate: EpochGate | None = None,
    ) -> None:
        clock = HubClock.of(clock)
        lanes = lanes or Lanes()
        gate = gate or EpochGate(ledger, clock)
        counters = Counters()
        framer = Framer(config.frame, lanes.has_own)
        queues = PublishQueues(config.ingest, framer, ledger, clock, counters, self.wake)
        on_fall = marks.watermark_fell if marks is not None else lambda: None
        self._deferred = deferred = DeferredWrites(ledger, clock, self.wake, on_fall)
        self.packer = BundlePacker(ledger, clock.now_ns)
        self.keeper = HeadKeeper(
            *(config.device.id, clock.now_ns, clock.reach, lanes),
            synced=lambda: clock.quality is Quality.SYNCED,
        )
        reserve = reserve or Reserve(ledger.path, 0)
        ages = Ages(config.ledger.age_s_max)
        self.gate, self._framer = gate, framer
        super().__init__(
            ledger,
            clock,
            # In the order of their messages. A mark has everything framed; heads follow from the others.
            [
                *([marks] if marks is not None else []),
                *(gate, queues, deferred, self.packer, self.keeper),
            ],
            eviction=Eviction(ledger, clock, ages, reserve, self._receipt, self._commit_own),
            counters=counters,
            on_commit=on_commit,
        )
        self.submit, self.take_newest_frames = queues.submit, queues.take_newest_frames
        self.set_watermark = deferred.set_watermark
        self.note_step, self.set_step = deferred.note_step, deferred.set_step
        self.note_used, self.set_used = deferred.note_used, deferred.set_used
        self.set_aside, self.apply = deferred.set_aside, deferred.apply
        self.tell, self.all_written = deferred.tell, deferred.all_written

    def set_flush_s(self, age_s_max: float) -> None:
        """Frame points at this age from now on, in seconds."""
        self._framer.age_s_max = age_s_max

    @property
    def buffered_points(self) -> int:
        """Return how many acknowledged points are staged but not framed."""
        return self._framer.buffered_points + self.gate.unconfirmed.points

    def status(self) -> dict[str, Any]:
        """Return the writer's part of the ledger's status."""
        return {
            "reserve_held": self.eviction.reserve.held,
            "staged_points": self.buffered_points,
            "epoch": str(self.gate.epochs.verdict),
            "suspect_points": self.gate.unconfirmed.points,
            "evicted_messages": self.eviction.evicted,
            **self.packer.status(),
        }

    async def restore(self) -> None:
        """Take heads and staged rows back into memory; set aside staged rows that are damaged.

        Raises:
            LedgerStorageError: the ledger cannot be read.
        """
        self.keeper.restore(await self._ledger.heads(), self._ledger.meta)
        await self.eviction.start()
        for row in await self.gate.restore():
            self._deferred.lose(row)

    async def _commit_own(self, changes: LedgerChanges) -> None:
        """Commit the changes that make room; an epoch that is over ends with these, too."""
        self.gate.open(changes)
        await self._ledger.commit(changes)
        if self.gate.opened(changes):
            self._on_commit()

    def _receipt(
        self, lane: str, epoch: int, lo: int, hi: int, reason: str, chain: bytes | None
    ) -> Outgoing:
        note = receipt(lane, epoch, lo, hi, reason, self._clock.now_ns(), chain)
        return marked([note], self._clock.mark)[0]
