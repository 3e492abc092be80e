"""What a lane owes the hub: what it asks for again, and former epochs that both ends compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.uplink.appender import Appender, AppenderState
from backhaul_agent.uplink.comparison import EMPTY_S, OWED_S
from backhaul_agent.uplink.reconcile import (
    MOVED,
    Spare,
    question_of,
)
from backhaul_agent.uplink.resend import ResendAsk, Work
from backhaul_agent.uplink.resend_requests import LOST, MISSING
from backhaul_codec.protocol.words import spare_of
from backhaul_codec.ranges import RangeSet
from tests.simulation.lane_parts import (
    SEQ_MAX,
)

if TYPE_CHECKING:
    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.uplink.appender import Appender
    from backhaul_agent.uplink.confirmations import Confirmations
    from backhaul_agent.uplink.resend import Resends
    from tests.simulation.models import OutModel
    from tests.simulation.vehicle import Vehicle


class LaneDebts:
    """A lane of which the hub may lack something."""

    name: str
    appender: Appender
    resends: Resends
    confirmations: Confirmations
    _vehicle: Vehicle
    _ask: ResendAsk | None
    _ends: dict[int, tuple[str, int, float]]
    _owed: dict[int, tuple[int, float]]

    @property
    def row(self) -> CommittedLane:
        """Return the ledger's row of the lane, in the epoch whose turn it is."""
        row = self._vehicle.ledger.lane(self.name, self.appender.epoch)
        assert row is not None
        return row

    @property
    def _out(self) -> OutModel:
        return self._vehicle.out(self.name)

    def _answer(self, ask: ResendAsk) -> None:
        ledger = self._vehicle.ledger
        turn = self._turn_of(ask.epoch)
        if turn is None:
            return
        self._ask = None
        works, missing = [], []
        in_out = {(m.epoch, m.seq): at for at, (m, _) in self._out.messages.items()}
        for low, high in self.resends.not_flying(ask):
            for seq in range(low, min(high, turn) + 1):  # what is above goes in its turn
                if (self.name, ask.epoch, seq) in ledger.rows:
                    works.append(Work(ask.epoch, seq, seq))
                elif (ask.epoch, seq) in in_out:
                    works.append(Work(ask.epoch, seq, seq, in_out[ask.epoch, seq]))
                else:
                    missing.append(seq)
        self.resends.begin(works)
        lane, alone = ledger.lane(self.name, ask.epoch), ask.machine == self._vehicle.machine
        given_up = [
            (seq, seq, MOVED) for seq in sorted(ledger.moved.get((self.name, ask.epoch), ()))
        ]
        for low, high in RangeSet((seq, seq) for seq in missing):
            known = [each for each in given_up if low <= each[0] <= high]
            for first, last, why in self._vehicle.cores.reasons(
                lane, known, low, high, alone=alone
            ):
                if why in (LOST, MISSING):
                    self._vehicle.gave_up(self.name, ask.epoch, first, last)
                self._vehicle.explain(self.name, ask.epoch, first, last, why)

    def _turn_of(self, epoch: int) -> int | None:
        if self.appender.state is not AppenderState.RUNNING:
            return None
        if epoch == self.appender.epoch:
            return self.appender.position
        if epoch in self.confirmations.disputed:
            return None
        epochs = [lane.epoch for lane in self._vehicle.ledger.chain(self.name)]
        later = epoch in epochs and epochs.index(epoch) > epochs.index(self.row.epoch)
        return 0 if later else SEQ_MAX

    def _past(self, epoch: int) -> bool:
        current = self._vehicle.ledger.epoch
        at_end = (
            self.appender.state is AppenderState.RUNNING and self.appender.epoch == current != epoch
        )
        return at_end and not self.resends.pending

    def _note_owed(self, now_s: float) -> None:
        for lane in self._vehicle.ledger.chain(self.name)[:-1]:
            if lane.whole or not self._past(lane.epoch):
                continue
            watermark, since_s = self._owed.get(lane.epoch, (-1, now_s))
            since_s = since_s if watermark == lane.watermark else now_s
            self._owed[lane.epoch] = lane.watermark, since_s
            if now_s - since_s >= OWED_S:
                self.confirmations.dispute(lane.epoch, "owed for long")

    def _may_compare(self, epoch: int, now_s: float) -> bool:
        ledger, out = self._vehicle.ledger, self._out
        if (self.name, epoch) not in ledger.closed:
            if epoch != ledger.epoch:
                self.confirmations.settle(epoch)
            return False
        if not self._past(epoch):
            return False
        known = self._ends.get(epoch)
        if known is None or known[0] != out.created:
            known = self._ends[epoch] = out.created, out.last_seq, now_s
        if not out.messages or min(out.messages) > known[1]:
            return now_s - known[2] >= EMPTY_S
        return out.floor >= known[1]

    def _compare(self, epoch: int) -> None:
        """Compare an epoch with what the hub holds, message by message; as far as it answers."""
        vehicle = self._vehicle
        lane = vehicle.ledger.closed[self.name, epoch]
        after, into, moved, later = lane.confirmed, spare_of(epoch), 0, 0
        again: list[Work] = []
        while rows := vehicle.ledger.owned(lane, after):
            asked = question_of(lane, rows)
            hashes = vehicle.ask_hashes(self.name, epoch, asked.lo, asked.hi)
            if hashes is None:
                return
            there = vehicle.ledger.lane(self.name, into)
            spare = Spare()
            if there is not None:
                known = vehicle.ledger.owned(there, asked.lo - 1)
                spare = Spare(there.last_seq, there.confirmed, {row.seq: row for row in known})
            verdicts = vehicle.cores.judge(lane, rows, asked.lo, hashes, spare)
            again += [Work(epoch, low, high) for low, high in verdicts.again]
            vehicle.move(lane, verdicts)
            moved, later = moved + verdicts.moved, later + verdicts.later
            after = verdicts.settled_seq
        self._ends.pop(epoch, None)
        self._owed.pop(epoch, None)
        if moved:
            self.confirmations.dispute(into, "messages were moved there")
        if again or later:
            self.confirmations.postpone(epoch)
            for work in again:
                self.resends.drain(work)
            return
        self.confirmations.settle(epoch)
        vehicle.set_watermark(self.name, lane.last_seq, epoch)
