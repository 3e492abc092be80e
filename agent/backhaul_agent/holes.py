"""Answers what the hub asks for again: finds where it is, and says of the rest why it will never come.

The lane appends what was found (`resend.Resends`); this runs beside it, off the way of new messages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.events import receipt
from backhaul_agent.resend import Work, read_ask
from backhaul_codec.envelope import NO_LINK
from backhaul_codec.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from backhaul_agent.clock import Clock
    from backhaul_agent.downlink import Inbound
    from backhaul_agent.lane import Lane
    from backhaul_agent.ledger import Ledger
    from backhaul_agent.ledger_rows import Changes
    from backhaul_agent.out_stream import OutStream
    from backhaul_agent.resend import Ask, Resends
    from backhaul_agent.writer import Writer

FLOW_S = 0.25  # between looks at how much the hub has taken, while a run waits for that
RETRY_S = 1.0
RECEIPTS_MAX = 256  # in one answer; the hub asks again for what is left
LOST = "ledger lost"
FORGOTTEN = "forgotten: the hub had confirmed it"
MISSING = "missing in the ledger"
log = structlog.get_logger("holes")


class Holes:
    """The requests of one lane; lives as long as the daemon.

    ``turn_of`` returns the last seq of an epoch whose turn has come in the lane, None while the lane
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
    ) -> None:
        self.answered = 0
        self._lane = lane
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._resends = resends
        self._turn_of = turn_of
        self._wake_lane = wake
        self._ask: Ask | None = None
        self._id: int | str | None = None
        self._asked = asyncio.Event()

    def ask(self, ask: Ask) -> None:
        """Take in a request; one that was seen changes nothing, a newer one replaces it."""
        if ask.id == self._id:
            return
        self._id, self._ask = ask.id, ask
        self._asked.set()

    async def run(self, out: OutStream, durable: str) -> None:
        """Answer for as long as this connection lives (the caller cancels)."""
        self._asked.set()
        while True:
            try:
                async with asyncio.timeout(FLOW_S if self._resends.waits_for_flow else None):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                if self._resends.waits_for_flow or self._ask is not None:
                    self._resends.flowed(await out.taken(durable), self._clock.monotonic_s())
                    self._wake_lane()
                if self._ask is not None:
                    await self._answer(out, self._ask)
            except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                log.warning("a request to resend waits", lane=self._lane, error=str(error))
                await asyncio.sleep(RETRY_S)
                self._asked.set()

    def look(self) -> None:
        """Look again, because the lane runs again or has begun a run."""
        self._asked.set()

    async def _answer(self, out: OutStream, ask: Ask) -> None:
        """Find what is asked for: in the ledger, else in OUT; the rest gets receipts."""
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
            await self._explain(ask.epoch, [h for lo, hi in missing for h in there.holes(lo, hi)])
        if ask is not self._ask:
            return  # a newer request came
        self._ask = None
        self.answered += 1
        self._resends.begin(sorted(works, key=lambda work: work.lo))
        if works:
            log.info("appending again", lane=self._lane, epoch=ask.epoch, request=ask.id,
                     messages=sum(work.hi - work.lo + 1 for work in works))  # fmt: skip
        self._wake_lane()

    async def _explain(self, epoch: int, gone: list[tuple[int, int]]) -> None:
        """Write receipts for what is nowhere."""
        spans: list[tuple[int, int, str]] = []
        for lo, hi in gone:
            spans += await self._reasons(epoch, lo, hi)
        if not spans:
            return
        now_ns = self._clock.time_ns()
        notes = [
            receipt(self._lane, epoch, *span, now_ns, await self._hash_at(epoch, span[1]))
            for span in spans[:RECEIPTS_MAX]
        ]
        log.warning("the hub lacks what is nowhere", lane=self._lane, epoch=epoch, spans=spans[:8])
        await self._writer.set_aside([], notes)

    async def _hash_at(self, epoch: int, seq: int) -> bytes | None:
        """Return what carries the chain across a gap that ends here, None where nothing tells it."""
        lane = self._ledger.lane(self._lane, epoch)
        known = None if lane is None else await self._ledger.hash_at(lane, seq)
        return None if known == NO_LINK else known

    async def _reasons(self, epoch: int, lo: int, hi: int) -> list[tuple[int, int, str]]:
        """Return why each part of ``lo..hi`` will never come, in order."""
        lane = self._ledger.lane(self._lane, epoch)
        if lane is None:
            return [(lo, hi, LOST)]
        known = await self._ledger.given_up(self._lane, epoch, lo, hi)
        spans = list(known)
        for first, last in RangeSet((a, b) for a, b, _ in known).holes(lo, hi):
            parts = (
                (1, lane.confirmed, FORGOTTEN),
                (lane.confirmed + 1, lane.last_seq, MISSING),
                (lane.last_seq + 1, hi, LOST),
            )
            for low, high, reason in parts:
                if max(low, first) <= min(high, last):
                    spans.append((max(low, first), min(high, last), reason))
        return sorted(spans)


class Asks:
    """Hands every lane what the hub asks of it: `s.resend.<lane>` in IN."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._lanes = {lane.name: lane for lane in lanes}

    def on_message(self, message: Inbound, changes: Changes) -> None:
        """Take in a request; it is kept in memory, the hub asks again.

        Raises:
            ValueError: it is none, or of no lane.
        """
        lane = self._lanes.get(message.tokens[-1])
        if lane is None or len(message.tokens) != 3:
            raise ValueError("a request to resend of no lane")
        lane.on_ask(read_ask(message.data))
