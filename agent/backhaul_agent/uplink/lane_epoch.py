"""The epoch of a lane whose turn it is in OUT, and its appender: former ones first, each to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.uplink.appender import Appender, State

if TYPE_CHECKING:
    from collections.abc import Container

    from backhaul_agent.ledger.lanes import Lane
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.uplink.appender import Limits

SEQ_MAX = (1 << 62) - 1


class LaneEpoch:
    """Follows the lane ``name``; lives as long as the daemon. Begins with the ledger's own epoch."""

    def __init__(self, name: str, ledger: Ledger, limits: Limits) -> None:
        self._name = name
        self._ledger = ledger
        self._limits = limits
        self._entered = ledger.lanes[name]
        self.appender = self._appender_of(self._entered)

    @property
    def state(self) -> Lane:
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
        return self.appender.state is State.RUNNING and self.is_current

    @property
    def is_over(self) -> bool:
        """Whether nothing more of a former epoch is to be appended in its turn."""
        appender = self.appender
        if self.is_current:
            return False
        at_end = appender.done and appender.appended >= self.state.last_seq
        return (at_end and appender.made_whole) or appender.state is State.BEHIND

    def on_commit(self) -> None:
        """Learn that the ledger has grown, that more of it may leave, or that an epoch is over."""
        state, appender = self.state, self.appender
        appender.committed(state.ready_seq, state.last_seq)
        if state.confirmed > appender.confirmed:
            # Heard beside IN, as of an epoch that is over, or while the lane was in another.
            appender.set_watermark(state.confirmed)
            appender.set_watermark(state.watermark)

    def chain(self) -> list[Lane]:
        """Return the lane in every epoch that the ledger has, the oldest first."""
        closed = (lane for (name, _), lane in self._ledger.closed.items() if name == self._name)
        return [*sorted(closed, key=lambda lane: lane.id), self._ledger.lanes[self._name]]

    def enter(self, state: Lane) -> None:
        """Go on with another epoch; its place in the stream is to be found."""
        before, self._entered = self.appender, state
        self.appender = self._appender_of(state)
        self.appender.generation = before.generation
        self.appender.connected()

    def turn_of(self, epoch: int, disputed: Container[int]) -> int | None:
        """Return the last seq of an epoch whose turn has come; None while the lane does not run.

        ``disputed``: epochs that are being compared with what the hub has; not sent again meanwhile.
        """
        if self.appender.state is not State.RUNNING:
            return None
        if epoch == self.appender.epoch:
            return self.appender.position
        if epoch in disputed:
            return None
        epochs = [lane.epoch for lane in self.chain()]
        later = epoch in epochs and epochs.index(epoch) > epochs.index(self.state.epoch)
        return 0 if later else SEQ_MAX

    def _appender_of(self, state: Lane) -> Appender:
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
