"""What the hub says of the ledger's epochs, and what follows from it: the shell around `epochs` and `commit.unconfirmed_rows`.

It is asked in the clock exchange, while anything is to be learned: of the current epoch whether it may
go on, of former ones how far the hub holds them, and whether staged rows of theirs were sent.

Where the hub knows more of a former epoch than ledger and OUT together, the whole disk went back. The hub
has passed sequences then that OUT gives out again, and takes what comes under them for old: the lanes go on
beyond all that may have been used.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.leaf.streams import out_stream
from backhaul_agent.ledger.rows import STAGED, Quarantine
from backhaul_agent.ledger.system_events import event
from backhaul_agent.uplink.adoption import plain_body, sent_since
from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.out_stream import OutStream
from backhaul_codec import CodecError
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_runtime.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backhaul_agent.commit.unconfirmed_rows import Former
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow
    from backhaul_agent.uplink.lane import Lane
    from backhaul_codec import Point
    from backhaul_runtime.clock import Clock

ASKED_MAX = 16  # epochs in one question
SPAN_MAX = 4096  # messages of OUT that are compared with staged rows
ROWS_MAX = 256  # of the ledger, in memory at a time
RETRY_S = 5.0
PASSED_MARGIN = 1 << 20  # sequences that may have been used for what was appended again
# The highest seq that the hub knows of each lane, and up to where it holds everything.
Known = dict[str, tuple[int, int]]
# By lane: the hash of the message at the watermark, in hex or empty, and the fork (see `Claim`).
Ends = dict[str, tuple[str, int]]
log = structlog.get_logger("epochs")


class _End(NamedTuple):
    """Where the ledger ends in a lane of an epoch, and the highest seq that OUT or the hub knows."""

    epoch: int
    last: int
    highest: int


class EpochWords:
    """Asks and hears; lives as long as the daemon."""

    def __init__(
        self, ledger: Ledger, writer: Writer, clock: Clock, lanes: Sequence[Lane] = ()
    ) -> None:
        self._lanes = lanes
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._highest: dict[int, dict[str, int]] = {}  # what the hub knows, by epoch and lane
        self._compared: set[int] = set()  # epochs whose OUT was looked at
        self._at_start = set(
            ledger.epochs
        )  # those that a newer copy of the ledger may have gone on in
        self._news = asyncio.Event()
        self._recheck = (
            False  # the link has come up: another may have written in this epoch meanwhile
        )

    def link_up(self) -> None:
        """Have the hub asked about the current epoch, too."""
        self._recheck = True

    def wanted(self) -> list[int]:
        """Return the epochs of which something is to be learned, the current one first."""
        writer, ledger = self._writer, self._ledger
        vague = any(ledger.epoch in lane.confirmations.vague for lane in self._lanes)
        found = [ledger.epoch] if writer.gate.waiting or self._recheck or vague else []
        found += [epoch for lane in self._lanes for epoch in sorted(lane.adoption.strangers)]
        for suspect in writer.gate.unconfirmed.formers:
            found += [suspect.epoch, *self._unheard(suspect)]
        former = sorted(ledger.closed.values(), key=lambda lane: lane.id)
        # Also if it was heard of before it was over: that has not been judged.
        if former and former[-1].epoch not in self._compared:
            found.append(former[-1].epoch)
        found += [lane.epoch for lane in former if not lane.whole]
        return list(dict.fromkeys(found))[:ASKED_MAX]

    def _unheard(self, former: Former) -> list[int]:
        """Return the epochs after a former one in which its staged rows may have been sent, of which the hub has not spoken.

        A newer copy of this ledger may have gone on in any that was there at the start, the current one included.
        """
        later = set(self._after(former)) & self._at_start
        return sorted(later - self._highest.keys() - {former.epoch})

    def _after(self, former: Former) -> list[int]:
        """Return a former epoch and those after it, in their order; none where the ledger has it no more."""
        epochs = list(dict.fromkeys(state.epoch for state in self._ledger.every_lane()))
        return epochs[epochs.index(former.epoch) :] if former.epoch in epochs else []

    def heard(self, epochs: Mapping[int, Known], chain: Mapping[int, Ends]) -> None:
        """Take in what the hub knows of some epochs, and the hashes of its watermarks."""
        for epoch, lanes in epochs.items():
            ends = chain.get(epoch, {})
            for shell in self._lanes:
                known, held = lanes.get(shell.name, (0, 0))
                hash_, fork = ends.get(shell.name, ("", 0))
                shell.on_watermark(epoch, Claim(held, bytes.fromhex(hash_) or None, fork))
                self._compare_with(shell, epoch, known)
            highest = {lane: seq for lane, (seq, _) in lanes.items()}
            self._highest[epoch] = highest
            self._news.set()
            if epoch == self._ledger.epoch:
                self._recheck = False
                self._writer.gate.epochs.hub_knows(highest)
                self._writer.wake()

    def _compare_with(self, shell: Lane, epoch: int, highest: int) -> None:
        """Doubt an epoch of which the hub knows more than the ledger."""
        lane = self._ledger.lane(shell.name, epoch)
        if lane is not None and highest > lane.last_seq:
            why = f"the hub knows more of {shell.name} than the ledger"
            shell.confirmations.dispute(epoch, why)

    async def run(self, jetstream: JetStream) -> None:
        """Judge former epochs for as long as this connection lives."""
        self._news.set()  # what the connection before left undone
        kinds = (JetStreamError, NatsError, OSError, LedgerStorageError)
        trouble = Trouble(log, "staged_rows_wait", *kinds, wait_s=RETRY_S)
        while True:
            await self._news.wait()
            self._news.clear()
            async with trouble:
                for former in self._writer.gate.unconfirmed.formers:
                    over = former.epoch in self._highest and former.epoch != self._ledger.epoch
                    if over and not self._unheard(former):
                        await self._judge(former, jetstream)
                for epoch, highest in list(self._highest.items()):
                    if epoch != self._ledger.epoch and epoch not in self._compared:
                        await self._look_back(epoch, highest, jetstream)
                        self._compared.add(epoch)
            if trouble.now:
                self._news.set()

    async def _judge(self, former: Former, jetstream: JetStream) -> None:
        """Find out whether the points that were staged in an epoch have been sent."""
        suspects, whole = self._writer.gate.unconfirmed, True
        sent: list[Point] = []
        for lane in [lane for lane in self._ledger.lanes if lane != "live"]:
            out = OutStream(jetstream, out_stream(lane))
            await out.index()
            taken_in = former.taken_in.get(lane, {})
            for end in self._ends(out, lane, former):
                points, found = await self._sent(out, end)
                sent += points
                if end.epoch in taken_in:  # OUT may have been emptied since
                    points, kept = await self._kept(out, lane, end)
                    sent += points
                    found = found.union(kept)
                whole &= not found.holes(end.last + 1, end.highest)
        if not sent and whole:
            suspects.clear(former.epoch)
        elif whole and not suspects.marked(former.epoch):
            dropped = suspects.compare(former.epoch, sent)
            log.warning("staged_points_sent_before", epoch=former.epoch, points=dropped)
        else:
            await self._give_up(former.epoch)
        self._writer.wake()

    def _ends(self, out: OutStream, lane: str, former: Former) -> list[_End]:
        """Return where the ledger ends in a lane: of a former epoch, and of those that came after it.

        A ledger may go back more than once. The rows that were staged in the former epoch may then have been sent
        in a later one. Of that one this ledger knows less than OUT, or nothing, or less than the hub where OUT has
        lost it since. The current epoch is such a one, too, as long as nobody vouches for it. So all lanes are read
        at once, right after OUT: this ledger itself sends all that is appended from then on.
        """
        states = self._ledger.every_lane()
        own = {state.epoch: state.last_seq for state in states if state.name == lane}
        taken_in = former.taken_in.get(lane, {})
        last_seqs = own | {epoch: first - 1 for epoch, (first, _) in taken_in.items()}
        last_seqs[former.epoch] = former.last_seqs.get(lane, 0)
        in_out = sent_since(out, self._ledger, lane, former)
        for epoch, (_, last) in taken_in.items():
            in_out[epoch] = max(in_out.get(epoch, 0), own.get(epoch, 0), last)
        later = set(self._after(former)) & self._highest.keys()
        ends = []
        for epoch in in_out.keys() | later | {former.epoch}:
            known = self._highest.get(epoch, {}).get(lane, 0)
            ends.append(_End(epoch, last_seqs.get(epoch, 0), max(known, in_out.get(epoch, 0))))
        return ends

    async def _kept(self, out: OutStream, lane: str, end: _End) -> tuple[list[Point], RangeSet]:
        """Return the points of the messages beyond an end that the ledger took in from OUT, and their seqs."""
        points: list[Point] = []
        seqs = RangeSet()
        for low in range(end.last + 1, min(end.highest, end.last + SPAN_MAX) + 1, ROWS_MAX):
            rows = await self._ledger.read(lane, low, ROWS_MAX, end.epoch)
            for row in [row for row in rows if row.seq < low + ROWS_MAX]:
                await self._add_points(row, out, points, seqs)
        return points, seqs

    async def _sent(self, out: OutStream, end: _End) -> tuple[list[Point], RangeSet]:
        """Return what OUT, as indexed, holds beyond the ledger's end: the points, and the seqs they stood in."""
        points: list[Point] = []
        seqs = RangeSet()
        for work in out.find_indexed(end.epoch, [(end.last + 1, end.last + SPAN_MAX)]):
            for row in await out.rows(work):
                await self._add_points(row, out, points, seqs)
        return points, seqs

    async def _add_points(
        self, row: LedgerRow, out: OutStream, points: list[Point], seqs: RangeSet
    ) -> None:
        """Add a message's points and its seq; nothing where it cannot be read."""
        try:
            body = await plain_body(row.body, out, self._writer.packer)
            addressed = decode_addressed(parse_leaf(row.subject), body)[1]
        except (CodecError, SubjectError):
            return
        points += [each.point for each in addressed]
        seqs.add(row.seq)

    async def _look_back(self, epoch: int, highest: dict[str, int], jetstream: JetStream) -> None:
        """Find out whether OUT went back together with the ledger."""
        states = [lane for lane in self._ledger.every_lane() if lane.epoch == epoch]
        # As they are now: while OUT is looked through, the ledger may take in what it lacks.
        lacks = {lane.name: (lane.last_seq + 1, highest.get(lane.name, 0)) for lane in states}
        more = {name: part for name, part in lacks.items() if part[0] <= part[1]}
        for name, part in more.items():
            out = OutStream(jetstream, out_stream(name))
            if await out.find(epoch, [part]):
                return  # it has what the ledger lacks
            if any(run.epoch not in self._ledger.epochs for run in out.runs):
                return  # it has what came after the ledger was copied
        if any(shell.adoption.adopted for shell in self._lanes):
            return
        if not more:
            return
        log.warning("disk_went_back", epoch=epoch, highest=highest)
        shells = {lane.name: lane for lane in self._lanes}
        for state in states:
            last = max(highest.get(state.name, 0), state.last_seq)
            if (shell := shells.get(state.name)) is not None:
                shell.on_passed(last + state.steps.bound(0) + PASSED_MARGIN)

    async def _give_up(self, epoch: int) -> None:
        """Set rows aside that may have been sent or not, and tell the hub."""
        rows, notes = [], []
        for row in self._writer.gate.unconfirmed.give_up(epoch):
            reason = f"staged in epoch {epoch}, whose ledger was lost: may have been sent"
            log.error("staged_row_quarantined", node=row.node, points=row.points, reason=reason)
            rows.append(Quarantine(STAGED, row.id, reason))
            lost = {"node": row.node, "points": row.points, "reason": reason}
            notes.append(event("quarantined", lost, self._clock.now_ns()))
        if rows:
            await self._writer.set_aside(rows, notes)
