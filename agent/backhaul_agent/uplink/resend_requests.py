"""Answers the hub's requests for messages: finds them, and says of the others why they will never come.

The lane appends what was found (`resend.Resends`); this runs beside it, off the way of new messages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.ledger.system_events import receipt
from backhaul_agent.uplink.reconcile import MOVED
from backhaul_agent.uplink.resend import Work
from backhaul_codec.ranges import RangeSet
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_runtime.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ledger.lanes import CommittedLane as LaneState
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.uplink.out_stream import OutStream
    from backhaul_agent.uplink.resend import ResendAsk, Resends
    from backhaul_runtime.clock import Clock

FLOW_S = 0.25  # between looks at how much the hub has taken, while a run waits for that
LAND_S = 5.0  # the same, while copies are on their way alone: until they have landed their lane is not pushed
RETRY_S = 1.0
RECEIPTS_MAX = 256  # in one answer; the hub asks again for what is left
LOST = "ledger lost"
FORGOTTEN = "forgotten: the hub had confirmed it"
MISSING = "missing in the ledger"
log = structlog.get_logger("holes")

Span = tuple[int, int, str]
"""The first and the last seq, and why they will never come."""


def reasons(
    lane: LaneState | None, given_up: Sequence[Span], lo: int, hi: int, *, alone: bool
) -> list[Span]:
    """Return why parts of ``lo..hi`` will never come, in order; a part left out another machine may have.

    Args:
        lane: theirs, None where this ledger does not know their epoch.
        given_up: what of them the ledger has given up, and why.
        lo: the first seq, of those that neither the ledger nor OUT has.
        hi: the last.
        alone: whether no other machine may have written, or have, what this ledger does not know.
    """
    if lane is None:
        return [(lo, hi, LOST)] if alone else []
    # In the place of a message that was moved stood another one, of which this ledger knows nothing.
    own = [span for span in given_up if span[2] != MOVED]
    strange = RangeSet((a, b) for a, b, why in given_up if why == MOVED)
    spans = own + [(a, b, LOST) for a, b in strange if alone]
    for first, last in RangeSet((a, b) for a, b, _ in given_up).holes(lo, hi):
        parts = (
            (1, lane.confirmed, FORGOTTEN, True),
            (lane.confirmed + 1, lane.last_seq, MISSING, alone),
            (lane.last_seq + 1, hi, LOST, alone),
        )
        for low, high, reason, sure in parts:
            if sure and max(low, first) <= min(high, last):
                spans.append((max(low, first), min(high, last), reason))
    return sorted(spans)


class Holes:
    """The requests of one lane; lives as long as the daemon.

    ``machine``: the one this is (`machine.Machine`). ``turn_of`` returns the last seq of an epoch whose turn has come in the lane, None while the lane
    does not run. ``wake`` makes the lane look.
    """

    def __init__(
        self,
        lane: str,
        ledger: Ledger,
        writer: Writer,
        clock: Clock,
        resends: Resends,
        turn_of: Callable[[int], int | None],
        wake: Callable[[], None],
        machine: str = "",
    ) -> None:
        self.answered = 0
        self._machine = machine
        self._lane = lane
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._resends = resends
        self._turn_of = turn_of
        self._wake_lane = wake
        self._ask: ResendAsk | None = None
        self._id: int | str | None = None
        self._asked = asyncio.Event()

    def ask(self, ask: ResendAsk) -> None:
        """Take in a request; one that was seen changes nothing, a newer one replaces it."""
        if ask.id == self._id:
            return
        self._id, self._ask = ask.id, ask
        self._asked.set()

    async def run(self, out: OutStream, durable: str) -> None:
        """Answer for as long as this connection lives (the caller cancels)."""
        self._asked.set()
        kinds = (JetStreamError, LedgerStorageError, NatsError, OSError)
        trouble = Trouble(log, "resend_request_waits", *kinds, wait_s=RETRY_S, lane=self._lane)
        while True:
            await heard(self._asked, self._look_again_s())
            self._asked.clear()
            async with trouble:
                if self._resends.flying or self._ask is not None:
                    self._resends.flowed(await out.taken(durable), self._clock.monotonic_s())
                    self._wake_lane()
                if self._ask is not None:
                    await self._answer(out, self._ask)
            if trouble.now:
                self._asked.set()

    def _look_again_s(self) -> float | None:
        if self._resends.waits_for_flow:
            return FLOW_S
        return LAND_S if self._resends.flying else None

    def look(self) -> None:
        """Look again, because the lane runs again or has begun a run."""
        self._asked.set()

    async def _answer(self, out: OutStream, ask: ResendAsk) -> None:
        """Find the requested messages: in the ledger, else in OUT; the rest gets receipts."""
        turn = self._turn_of(ask.epoch)
        if turn is None:
            return  # asked again once the lane runs
        works: list[Work] = []
        missing: list[tuple[int, int]] = []
        for lo, hi in self._resends.not_flying(ask):
            top = min(hi, turn)  # what is above goes in its turn
            if lo > top:
                continue
            runs = await self._ledger.runs(self._lane, ask.epoch, lo, top)
            works += [Work(ask.epoch, *run) for run in runs]
            missing += RangeSet(runs).holes(lo, top)
        if missing:
            found = await out.find(ask.epoch, missing)
            works += found
            there = RangeSet((work.lo, work.hi) for work in found)
            await self._explain(ask, [h for lo, hi in missing for h in there.holes(lo, hi)])
        if ask is not self._ask:
            return  # a newer request came
        self._ask = None
        self.answered += 1
        self._resends.begin(sorted(works, key=lambda work: work.lo))
        if works:
            log.info("resending", lane=self._lane, epoch=ask.epoch, request=ask.id,
                     messages=sum(work.hi - work.lo + 1 for work in works))  # fmt: skip
        self._wake_lane()

    async def _explain(self, ask: ResendAsk, gone: list[tuple[int, int]]) -> None:
        """Write receipts for messages that are nowhere; not for those that another machine may have."""
        epoch, alone = ask.epoch, ask.machine in (None, self._machine)
        lane = self._ledger.lane(self._lane, epoch)
        spans: list[Span] = []
        for lo, hi in gone:
            given_up = await self._ledger.given_up(self._lane, epoch, lo, hi)
            spans += reasons(lane, given_up, lo, hi, alone=alone)
        if not alone and not spans and gone:
            log.warning(
                "gap_left_to_other_machine", lane=self._lane, epoch=epoch, seqs=gone[:8]
            )  # fmt: skip
        if not spans:
            return
        now_ns = self._clock.now_ns()
        notes = [
            receipt(self._lane, epoch, *span, now_ns, await self._hash_behind(epoch, span))
            for span in spans[:RECEIPTS_MAX]
        ]
        log.warning("gap_not_held", lane=self._lane, epoch=epoch, spans=spans[:8])
        await self._writer.set_aside([], notes)

    async def _hash_behind(self, epoch: int, span: Span) -> bytes | None:
        """Return the word that carries the chain across a gap, None where nothing tells it."""
        lane = self._ledger.lane(self._lane, epoch)
        if lane is None or span[2] == LOST:
            return None  # it was another history's
        known = await self._ledger.hash_at(lane, span[1])
        return None if known == NO_LINK else known
