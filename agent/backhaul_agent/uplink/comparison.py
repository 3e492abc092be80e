"""Compares the messages that former epochs still owe with the hub's: the shell around `reconcile`.

The hub is asked for hashes along with the time (`time_sync/exchange.py`), a bounded number of seqs at once. It
answers when it has read all that had reached it. So an epoch of a lane is compared only when OUT holds
nothing more of it that the hub has not taken: what the hub does not hold then will not come by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.ledger.system_events import epoch_event, receipt
from backhaul_agent.uplink.out_stream import OutStream
from backhaul_agent.uplink.reconcile import (
    ASK_ROWS,
    HashQuestion,
    Spare,
    judge,
    question_of,
)
from backhaul_agent.uplink.resend import Work
from backhaul_codec.protocol.words import SPARE, spare_of
from backhaul_runtime.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Outgoing, OwnRow
    from backhaul_agent.uplink.lane import Lane
    from backhaul_agent.uplink.reconcile import Verdicts
    from backhaul_runtime.clock import Clock

LOOK_S = 0.5
EMPTY_S = 2.0  # for which what was on its way when OUT was emptied may take to be read at the hub
OWED_S = 60.0  # for which a former epoch may stand still before it is compared
log = structlog.get_logger("epochs")


class Comparison:
    """Compares one epoch of one lane after the other; lives as long as the daemon.

    ``durable``: the hub's consumer on the OUT streams. ``ask`` has the hub asked at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        writer: Writer,
        clock: Clock,
        lanes: Sequence[Lane],
        durable: str,
    ) -> None:
        self.ask: Callable[[], None] = lambda: None
        self.moved = 0  # messages that went into a newer epoch
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._lanes = lanes
        self._durable = durable
        self._question: HashQuestion | None = None
        self._answer: asyncio.Future[list[str | None]] | None = None
        self._ends: dict[tuple[str, int], tuple[str, int, float]] = {}
        self._owed: dict[tuple[str, int], tuple[int, float]] = {}
        self._handed_in = False  # some was to be moved when the connection ended

    @property
    def question(self) -> HashQuestion | None:
        """Return the question for the hub, None for nothing."""
        return self._question

    def heard(self, lane: str, epoch: int, lo: int, hashes: list[str | None]) -> None:
        """Take in the hub's answer; one to another question is passed over."""
        asked = self._question
        if asked is None or self._answer is None or self._answer.done():
            return
        if (lane, epoch, lo) == asked[:3] and len(hashes) == asked.hi - asked.lo + 1:
            self._answer.set_result(hashes)

    def status(self) -> dict[str, Any]:
        """Return the comparison's part of the ledger's status."""
        compared = {epoch for lane in self._lanes for epoch in lane.confirmations.compared}
        return {"compared_epochs": len(compared)}

    async def run(self, jetstream: JetStream) -> None:
        """Compare for as long as this connection lives (the caller cancels)."""
        self._ends.clear()
        kinds = (JetStreamError, LedgerStorageError, NatsError, OSError)
        trouble = Trouble(log, "epoch_comparison_waits", *kinds, wait_s=0.0)
        while True:
            async with trouble:
                for lane in self._lanes:
                    self._note_owed(lane)
                    for epoch in sorted(lane.confirmations.disputed):
                        if await self._may_compare(lane, epoch, jetstream):
                            await self._compare(lane, epoch)
            await asyncio.sleep(LOOK_S)

    def _note_owed(self, lane: Lane) -> None:
        """Doubt messages that a former epoch owes for long: neither watermarks nor requests settle them."""
        now_s = self._clock.monotonic_s()
        for (name, epoch), state in self._ledger.closed.items():
            if name != lane.name or state.whole or not lane.past(epoch):
                continue
            watermark, since_s = self._owed.get((name, epoch), (-1, now_s))
            if watermark != state.watermark:
                since_s = now_s
            self._owed[name, epoch] = state.watermark, since_s
            if now_s - since_s >= OWED_S:
                lane.confirmations.dispute(epoch, f"owed for {OWED_S:g} s")

    async def _may_compare(self, lane: Lane, epoch: int, jetstream: JetStream) -> bool:
        """Whether the hub has all of an epoch that it will ever get by itself."""
        state = self._ledger.closed.get((lane.name, epoch))
        if state is None:
            if epoch != self._ledger.epoch:
                lane.confirmations.settle(epoch)  # its lanes were dropped: all of it was confirmed
            return False
        if state.held_seq or not lane.past(epoch):
            return False
        created, stream = await jetstream.created_and_state(lane.stream)
        now_s = self._clock.monotonic_s()
        place = lane.name, epoch
        known = self._ends.get(place)
        if known is None or known[0] != created:
            known = self._ends[place] = created, int(stream["last_seq"]), now_s
        if int(stream["first_seq"]) > known[1] or not stream["messages"]:
            return now_s - known[2] >= EMPTY_S
        return await OutStream(jetstream, lane.stream).taken(self._durable) >= known[1]

    async def _compare(self, lane: Lane, epoch: int) -> None:
        if self._handed_in:  # what still stands in its old place would be moved a second time
            await self._writer.all_written()
            self._handed_in = False
        if (state := self._ledger.closed.get((lane.name, epoch))) is None:
            return  # dropped meanwhile: all of it was confirmed
        after, moved, later = state.confirmed, 0, 0
        into = spare_of(epoch)
        again: list[tuple[int, int]] = []
        while rows := await self._ledger.owned(state, after, ASK_ROWS):
            question = question_of(state, rows)
            if question.hi - question.lo >= ASK_ROWS:  # rows are missing between them
                rows = [row for row in rows if row.seq < question.lo + ASK_ROWS]
                question = question_of(state, rows)
            hashes = await self._ask(question)
            verdicts = judge(state, rows, question.lo, hashes, await self._spare(lane, into, rows))
            again += verdicts.again
            later += verdicts.later
            if verdicts.changes:
                verdicts.changes.messages = self._words(lane.name, into, verdicts)
                self._handed_in = True
                await self._writer.apply(verdicts.changes)
                self._handed_in = False
                # Of those, what was to be moved, and found its place taken by then.
                left = await self._ledger.owned(state, rows[0].seq - 1, ASK_ROWS)
                later += len({row.id for row in left} & set(verdicts.changes.evict))
            after, moved = verdicts.settled_seq, moved + verdicts.moved
        self._ends.pop((lane.name, epoch), None)
        self._owed.pop((lane.name, epoch), None)
        if moved:
            lane.confirmations.dispute(into, "messages were moved there")
        if again or later:
            lane.confirmations.postpone(epoch)
            lane.append_again([Work(epoch, lo, hi) for lo, hi in again])
        else:
            lane.confirmations.settle(epoch)
            self._writer.set_watermark(lane.name, state.last_seq, epoch)
        self.moved += moved
        log.warning(
            "former_epoch_compared",
            lane=lane.name,
            epoch=epoch,
            moved=moved,
            again=len(again),
            later=later,
        )

    async def _spare(self, lane: Lane, into: int, rows: Sequence[OwnRow]) -> Spare:
        """Return this ledger's messages in the places that messages may go to."""
        state = self._ledger.closed.get((lane.name, into))
        if state is None:
            return Spare()
        there = await self._ledger.owned(state, rows[0].seq - 1, ASK_ROWS)
        return Spare(state.last_seq, state.confirmed, {row.seq: row for row in there})

    def _words(self, lane: str, into: int, verdicts: Verdicts) -> list[Outgoing]:
        """Tell of a spare epoch that it is over, how far it goes, and which of its seqs are not used."""
        if not verdicts.changes.adopted:
            return []
        now_ns, last = self._clock.now_ns(), verdicts.changes.adopted[0].rows[-1].seq
        lanes = {
            name: each.last_seq for (name, of), each in self._ledger.closed.items() if of == into
        }
        lanes[lane] = max(last, lanes.get(lane, 0))
        words = [receipt(lane, into, low, high, SPARE, now_ns) for low, high in verdicts.unused]
        return [*words, epoch_event(into, self._ledger.epoch, lanes, SPARE, now_ns)]

    async def _ask(self, question: HashQuestion) -> list[str | None]:
        self._question = question
        self._answer = asyncio.get_running_loop().create_future()
        self.ask()
        try:
            return await self._answer
        finally:
            self._question = self._answer = None
