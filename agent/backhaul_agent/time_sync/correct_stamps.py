"""Stamps that were made before the time was known, put right before their messages leave.

A marked message stays in the ledger (`Lane.ready_seq`). Once the time of its boot is known, its stamps
are shifted and the mark is taken off in one statement, a bounded number of messages at a time. A crash
in between leaves some with the mark, which are shifted later, and some without, which never are again.
Where the time will never be known the mark alone is taken off: the stamps stand, flagged as unset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import structlog

from backhaul_agent.commit.writer import Writer
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.hub_time.hub_clock import HubClock, HubClockState, Quality
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import CorrectedMessage, Inward, Pending
from backhaul_agent.ledger.system_events import JSON_DTYPE
from backhaul_codec import CodecError, Opaque, Point, encode_point, peek
from backhaul_codec.kinds import POINT, SYSTEM
from backhaul_codec.subjects import SubjectError, Uplink, parse_leaf
from backhaul_codec.wire.addressed import Addressed, decode_addressed
from backhaul_codec.wire.retime import retime
from backhaul_runtime.trouble import Trouble

SETTLE_ROWS = 128  # in one transaction: a quarter of a megabyte of frames
RETRY_S = 1.0
log = structlog.get_logger("clock")


class Correction(NamedTuple):
    """The correction of the stamps of a boot, and how good they are then."""

    shift_ns: int
    quality: Quality


class Corrected(NamedTuple):
    """A message put right, and the heads that were made of it: each with the time it had."""

    settled: CorrectedMessage
    heads: list[tuple[Addressed, int]]


def correct(row: Pending, correction: Correction | None, state: HubClockState) -> Corrected:
    """Return a message as it may leave. ``state``: the clock's report now.

    One that cannot be read or shifted is let go as it stands: the lane sets aside what is damaged.
    """
    if correction is None:
        return Corrected(CorrectedMessage(row.id, None), [])
    shift_ns, quality = correction
    try:
        place = parse_leaf(row.subject)
        if place.kind is SYSTEM and place.type == "clock":
            body = _told_anew(row, place, shift_ns, state)
        else:
            body = retime(row.body, shift_ns, clock=quality)
        heads = decode_addressed(place, row.body)[1] if place.kind is POINT else []
    except (CodecError, SubjectError):
        return Corrected(CorrectedMessage(row.id, None), [])
    moved = [(Addressed(parent, _shifted(point, shift_ns)), point.time) for parent, point in heads]
    return Corrected(CorrectedMessage(row.id, body, shift_ns), moved)


class Corrections:
    """The clock's report when a correction begins; the next hears of better estimates.

    They differ by milliseconds, and readings whose stamps were moved by different ones would change
    their order.
    """

    def __init__(self, clock: HubClock) -> None:
        self.state = clock.state()
        self._clock = clock
        self._known: dict[int, Correction] = {}

    def of(self, boot: int) -> Correction | None:
        """Return the correction of a boot's stamps; None where nobody knows."""
        found = self._known.get(boot)
        if found is None and (known := self._clock.correction_of(boot)):
            found = self._known[boot] = Correction(*known)
        return found


class StampCorrector:
    """Corrects all stamps that can be corrected, each time `due` is called; lives as long as the daemon."""

    def __init__(self, ledger: Ledger, writer: Writer, clock: HubClock) -> None:
        self.corrected = 0
        self.given_up = 0
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._corrections: Corrections | None = None  # of a settling that began and is not done
        self._due = asyncio.Event()

    def due(self) -> None:
        """Have it looked through once more."""
        self._due.set()

    async def run(self) -> None:
        """Settle for ever (the caller cancels)."""
        trouble = Trouble(log, "stamps_wait_for_disk", LedgerStorageError, wait_s=RETRY_S)
        while True:
            await self._due.wait()
            self._due.clear()
            async with trouble:
                await self._settle()
            if trouble.now:
                self._due.set()

    async def _settle(self) -> None:
        await self._writer.all_written()
        before = self.corrected, self.given_up
        # Where the disk failed in the middle, what is left moves as what was settled before it.
        corrections = self._corrections or Corrections(self._clock)
        while rows := await self._ledger.pending(self._clock.marks, SETTLE_ROWS):
            self._corrections = corrections
            changes = settled(rows, corrections)
            await self._writer.apply(changes)
            self._count(changes)
        self._corrections = None
        corrected, given_up = self.corrected - before[0], self.given_up - before[1]
        if corrected or given_up:
            log.info("stamps_corrected", corrected=corrected, given_up=given_up)
            self._writer.keeper.forget_future()

    def _count(self, durable: Inward) -> None:
        given_up = sum(each.body is None for each in durable.settled)
        self.given_up += given_up
        self.corrected += len(durable.settled) - given_up


def settled(rows: Iterable[Pending], corrections: Corrections) -> Inward:
    """Return the writes by which these messages may leave."""
    changes = Inward()
    for row in rows:
        done = correct(row, corrections.of(row.boot), corrections.state)
        changes.settled.append(done.settled)
        changes.replaced += done.heads
    return changes


def _told_anew(row: Pending, place: Uplink, shift_ns: int, state: HubClockState) -> bytes:
    """Return an `e.clock` that tells of the correction of the stamps after it, which are right now."""
    header, (_, addressed) = peek(row.body), decode_addressed(place, row.body)
    value = Opaque(JSON_DTYPE, msgspec.json.encode(clock_body(state)))
    point = Point(node="", type="clock", time=addressed[0].point.time + shift_ns, value=value)
    return encode_point(point, epoch=header.epoch, seq=header.seq)


def _shifted(point: Point, shift_ns: int) -> Point:
    return Point(
        node=point.node,
        type=point.type,
        key=point.key,
        time=point.time + shift_ns,
        value=point.value,
        tombstone=point.tombstone,
        origin=point.origin,
    )


def clock_body(state: HubClockState) -> dict[str, Any]:
    """Return the body of an `e.clock`: in force for all later messages on its lane."""
    body = {
        "quality": state.quality.name.lower(),
        "offset_ns": state.offset_ns,
        "error_ns": state.error_ns,
        "boot": state.boot,
    }
    return body if state.step_ns is None else body | {"step_ns": state.step_ns}
