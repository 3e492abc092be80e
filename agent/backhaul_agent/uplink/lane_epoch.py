"""The epoch of a lane whose turn it is in OUT: its appender, and the notes that the ledger keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.ledger.rows import LaneStep
from backhaul_agent.uplink.appender import Appender, AppenderState

if TYPE_CHECKING:
    from collections.abc import Container

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.sequence_offsets import OffsetStep
    from backhaul_agent.uplink.appender import Limits

USED_AHEAD = 1024  # how many seqs are recorded as sent at a time
SEQ_MAX = (1 << 62) - 1


class LaneEpoch:
    """Follows the lane ``name``; lives as long as the daemon. Begins with the ledger's own epoch."""

    def __init__(self, name: str, ledger: Ledger, writer: Writer, limits: Limits) -> None:
        self._name = name
        self.noted: OffsetStep | None = None  # the step that was recorded last
        self._used_noted = 0
        self._ledger = ledger
        self._writer = writer
        self._limits = limits
        self._entered = ledger.lanes[name]
        self.appender = self._appender_of(self._entered)

    @property
    def state(self) -> CommittedLane:
        """Return the row of the ledger for the lane in the epoch that is being appended."""
        self._entered = self._ledger.lane(self._name, self.appender.epoch) or self._entered
        return self._entered

    @property
    def is_current(self) -> bool:
        """Whether it is the epoch that the ledger writes."""
        return self.appender.epoch == self._ledger.epoch

    @property
    def runs(self) -> bool:
        """Whether the current epoch is being appended."""
        return self.appender.state is AppenderState.RUNNING and self.is_current

    @property
    def is_over(self) -> bool:
        """Whether nothing more of a former epoch is to be appended in its turn."""
        appender = self.appender
        if self.is_current:
            return False
        at_end = appender.done and appender.appended >= self.state.last_seq
        return (at_end and appender.gap_free) or appender.state is AppenderState.BEHIND

    def on_commit(self) -> None:
        """Learn that the ledger has grown, that more of it may leave, or that an epoch is over."""
        state, appender = self.state, self.appender
        appender.committed(state.ready_seq, state.last_seq)
        if state.confirmed > appender.confirmed:
            # Heard beside IN, as of an epoch that is over, or while the lane was in another.
            appender.set_watermark(state.confirmed)
            appender.set_watermark(state.watermark)

    def status(self) -> dict[str, Any]:
        """Return the epoch's part of the lane's status."""
        appender, committed = self.appender, self._ledger.lanes[self._name]
        # While what is left of former epochs goes first, nothing of this one is in OUT.
        of_this = self.is_current
        return {
            "epoch": appender.epoch,
            "state": str(appender.state),
            "last_seq": committed.last_seq,
            "ready_seq": committed.ready_seq,
            "appended": appender.appended if of_this else 0,
            "watermark": appender.watermark if of_this else committed.watermark,
            "outstanding_bytes": appender.outstanding_bytes,
            "waits_for_hub": appender.stalled_by_hub,
        }

    def owed(self) -> tuple[int, int]:
        """Return the last seq of the current epoch that is in OUT, and how far the hub has confirmed it."""
        return (self.appender.appended, self.appender.watermark) if self.runs else (0, 0)

    def confirmed_position(self) -> int | None:
        """Return the sequence in OUT of the last message that the hub has confirmed; None where that is not sure."""
        return self.appender.confirmed_position if self.runs else None

    def chain(self) -> list[CommittedLane]:
        """Return the lane in every epoch that the ledger has, the oldest first."""
        closed = (lane for (name, _), lane in self._ledger.closed.items() if name == self._name)
        return [*sorted(closed, key=lambda lane: lane.id), self._ledger.lanes[self._name]]

    def enter(self, state: CommittedLane) -> None:
        """Go on with another epoch; its place in the stream is to be found."""
        before, self._entered = self.appender, state
        self.appender = self._appender_of(state)
        self.appender.generation = before.generation
        self.appender.connected()
        self.noted, self._used_noted = None, 0

    def turn_of(self, epoch: int, disputed: Container[int]) -> int | None:
        """Return the last seq of an epoch whose turn has come; None while the lane does not run.

        ``disputed``: epochs that are being compared with what the hub has; not sent again meanwhile.
        """
        if self.appender.state is not AppenderState.RUNNING:
            return None
        if epoch == self.appender.epoch:
            return self.appender.position
        if epoch in disputed:
            return None
        epochs = [lane.epoch for lane in self.chain()]
        later = epoch in epochs and epochs.index(epoch) > epochs.index(self.state.epoch)
        return 0 if later else SEQ_MAX

    async def set_step(self, created: str, step: OffsetStep, *, fresh: bool = False) -> None:
        """Have a step recorded, durably, unless it says nothing new."""
        known, epoch = self.state.steps, self.appender.epoch
        if fresh:
            self._used_noted = 0
        if fresh or created != known.created or step.offset != known.last:
            self.noted = step
            await self._writer.set_step(LaneStep(self._name, created, step, fresh, epoch))

    def note_step(self) -> None:
        """Have it recorded that seqs were passed over, if any were since the last step.

        Not to know that costs a few repeats, so nobody waits for it.
        """
        steps, epoch = self.appender.steps, self.appender.epoch
        if steps.steps and steps.steps[-1] != self.noted:
            self.noted = steps.steps[-1]
            self._writer.note_step(LaneStep(self._name, steps.created, self.noted, epoch=epoch))

    def use_ahead(self, seq: int) -> None:
        """Have it recorded in time that the next seqs may be sent, so that nothing waits for it."""
        if not self.is_current:
            return  # all of a former epoch counts as sent
        if seq + USED_AHEAD // 2 > max(self._used_noted, self.state.used_seq):
            self._used_noted = seq + USED_AHEAD
            self._writer.note_used(self._name, self._used_noted)

    async def use(self, seq: int) -> None:
        """Have it recorded that seqs up to ``seq``, and more, may be sent; returns when it is durable."""
        await self._writer.set_used(self._name, seq + USED_AHEAD)

    def _appender_of(self, state: CommittedLane) -> Appender:
        appender = Appender(
            state.epoch,
            self._limits,
            opened_seq=state.last_seq,
            used_seq=min(state.used_seq, state.last_seq),
            steps=state.steps,
        )
        appender.committed(state.ready_seq)
        appender.set_watermark(state.confirmed)
        appender.set_watermark(state.watermark)
        return appender
