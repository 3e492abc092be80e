"""The rows of one lane as the appender gets them: read ahead, judged, set aside where they are no good."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.ledger.rows import ROW_BYTES, Quarantine
from backhaul_agent.ledger.system_events import receipt
from backhaul_agent.uplink.resend import RUN_BYTES
from backhaul_codec import CodecError, peek
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.addressed import check_addressed
from backhaul_codec.wire.dictionaries import plain

if TYPE_CHECKING:
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow
    from backhaul_agent.uplink.out_stream import OutStream
    from backhaul_agent.uplink.resend import Work
    from backhaul_codec.points import Header
    from backhaul_codec.subjects import Uplink
    from backhaul_runtime.clock import Clock

READ_ROWS = 64
HOLE_MAX = 4096  # seqs explained in one go
log = structlog.get_logger("lane")


class LaneRows:
    """Reads the lane ``name``; lives as long as the daemon."""

    def __init__(self, name: str, ledger: Ledger, writer: Writer, clock: Clock) -> None:
        self._name = name
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._ahead: deque[LedgerRow] = deque()

    def clear(self) -> None:
        """Forget the rows that were read ahead."""
        self._ahead.clear()

    async def first(self, lane: CommittedLane, seq: int) -> LedgerRow | None:
        """Return the first row of an epoch from ``seq`` on; rows read ahead are kept in memory."""
        while self._ahead and self._ahead[0].seq < seq:
            self._ahead.popleft()
        if not self._ahead or self._ahead[0].boot:  # its stamps were put right after it was read
            rows = await self._ledger.read(self._name, seq, READ_ROWS, lane.epoch)
            # What may not leave yet is changed until it may.
            self._ahead = deque(row for row in rows if row.seq <= lane.ready_seq)
        return self._ahead[0] if self._ahead else None

    async def pass_over(
        self, lane: CommittedLane, seq: int, row: LedgerRow | None, last_seq: int
    ) -> int:
        """Return up to where seqs are passed over that never come, durably explained; 0: send ``row``.

        ``row``: the first one from ``seq`` on, None where there is none up to ``last_seq``.
        """
        if row is None or row.seq != seq:
            return await self._explain_hole(lane, seq, row.seq - 1 if row else last_seq)
        if flaw := self._flaw(row, lane.epoch):
            await self._quarantine(lane.epoch, seq, seq, flaw)
            return seq
        return 0

    async def again(self, out: OutStream, work: Work) -> tuple[list[LedgerRow], int]:
        """Return the rows of a run that are there, within its size, and the last seq they speak for."""
        rows: list[LedgerRow] = []
        size = 0
        if work.stream_seq:
            found = await out.rows(work)
        else:
            count = work.hi - work.lo + 1
            found = await self._ledger.read(self._name, work.lo, count, work.epoch)
        for row in found:
            if row.seq > work.hi or row.boot:
                break
            if flaw := self._flaw(row, work.epoch):
                await self._quarantine(work.epoch, row.seq, row.seq, flaw)
                continue
            size += size_of(row)
            if rows and size > RUN_BYTES:
                return rows, row.seq - 1
            rows.append(row)
        return rows, work.hi

    def _flaw(self, row: LedgerRow, epoch: int) -> str:
        """Return the flaw of a row read back, empty where it has none: bits rot, disks lie."""
        try:
            place = parse_leaf(row.subject)
            header = self._proven(place, row.body)
        except (CodecError, SubjectError) as error:
            return str(error)
        if place.lane != self._name:
            return f"{row.subject!r} does not belong here"
        if (header.epoch, header.seq) != (epoch, row.seq):
            return f"it is stamped epoch {header.epoch} seq {header.seq}"
        return ""

    def _proven(self, place: Uplink, body: bytes) -> Header:
        """Return the header of a message that is whole, as far as this vehicle can tell. Raises: CodecError."""
        try:
            return check_addressed(place, plain(body, self._ledger.lookup))
        except CodecError as error:
            if error.code != "dictionary":
                raise
            return peek(body)  # the hub can prove it, and holds what it is packed against

    async def _explain_hole(self, lane: CommittedLane, lo: int, hi: int) -> int:
        """Give those seqs that are not there, and that nobody explained yet, a receipt.

        Returns up to where that went.
        """
        hi = min(hi, lo + HOLE_MAX - 1)
        known = await self._ledger.explained(lane, lo, hi)
        missing = [seq for seq in range(lo, hi + 1) if seq not in known]
        if missing:
            reason = "missing in the ledger"
            await self._quarantine(lane.epoch, missing[0], missing[-1], reason, *missing)
        return hi

    async def _quarantine(self, epoch: int, lo: int, hi: int, reason: str, *seqs: int) -> None:
        """Set rows aside and tell the hub, durably, that they will never come."""
        log.error("ledger_row_quarantined", lane=self._name, lo=lo, hi=hi, reason=reason)
        rows = [Quarantine(self._name, seq, reason, epoch) for seq in seqs or (lo,)]
        lane = self._ledger.lane(self._name, epoch)
        chain = await self._ledger.hash_at(lane, hi) if lane is not None else None
        note = receipt(self._name, epoch, lo, hi, f"corrupt: {reason}", self._clock.now_ns(), chain)
        await self._writer.set_aside(rows, [note])


def size_of(row: LedgerRow) -> int:
    """Return about how many bytes a row takes in a stream."""
    return len(row.body) + len(row.subject) + ROW_BYTES
