"""What OUT holds that the ledger does not know: found, and taken into the ledger.

A ledger that was put back from a copy knows nothing of the epochs that began after the copy was made, nor
of what came later in those that it knows. Some of that may stand in OUT and nowhere else. It is taken into
the ledger before anything is purged there, and as soon as the hub has said what it holds of it.

Nobody else will say of such an epoch that it is over. Its messages may come to the hub after those of the
current one, and the hub takes the epoch that it heard from last for the current one. So this ledger says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from backhaul_agent.ledger.rows import Adopted, Inward
from backhaul_codec import CodecError, hash_of, peek
from backhaul_codec.points import Kind
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.addressed import check_addressed
from backhaul_codec.wire.dictionaries import digest_in, plain, read_dictionary
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_codec.wire.split import survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backhaul_agent.commit.bundle_packer import BundlePacker
    from backhaul_agent.commit.unconfirmed_rows import Former
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow
    from backhaul_agent.uplink.out_stream import OutStream
    from backhaul_agent.uplink.resend import Work


async def plain_body(body: bytes, out: OutStream, packer: BundlePacker) -> bytes:
    """Return a message without need of its dictionary; one that only OUT has is taken in.

    Raises:
        CodecError: the message is damaged; `dictionary`: neither has it.
    """
    digest = digest_in(body)
    if digest is not None and packer.lookup(digest) is None:
        found = await out.dictionary(digest)
        if found is not None:
            packer.learn(*found)
    return plain(body, packer.lookup)


ADOPT_ROWS = 256  # in one transaction
log = structlog.get_logger("adoption")


class HeldLane(NamedTuple):
    """The hub's word on an epoch's lane: it holds all up to a seq, whose message has this hash."""

    seq: int
    hash: bytes | None
    over: bool = False
    """Whether it knows that the epoch is over."""


def unknown(runs: Iterable[Work], last_seqs: Mapping[int, int]) -> list[Work]:
    """Return what of OUT lies beyond the ledger, each seq once, epoch by epoch in OUT's order.

    Args:
        runs: what stands in OUT, as indexed.
        last_seqs: how far the ledger knows each epoch of this lane.
    """
    found: dict[int, list[Work]] = {}
    for run in sorted(runs, key=lambda each: each.stream_seq):
        low = max(run.lo, last_seqs.get(run.epoch, 0) + 1)
        if low <= run.hi:
            part = run._replace(lo=low, stream_seq=run.stream_seq + low - run.lo)
            found.setdefault(run.epoch, []).append(part)
    works: list[Work] = []
    for parts in found.values():
        done = 0
        for part in sorted(parts, key=lambda each: each.lo):  # a copy may begin where another does
            low = max(part.lo, done + 1)
            if low <= part.hi:
                works.append(part._replace(lo=low, stream_seq=part.stream_seq + low - part.lo))
                done = part.hi
    return works


def sent_since(out: OutStream, ledger: Ledger, lane: str, former: Former) -> dict[int, int]:
    """Return the highest seq in OUT, as indexed, of each epoch that was sent behind a former one's end."""
    states = ledger.every_lane()
    last_seqs = {state.epoch: state.last_seq for state in states if state.name == lane}
    epochs = list(dict.fromkeys(state.epoch for state in states))
    before = epochs[: epochs.index(former.epoch)] if former.epoch in epochs else []
    older = {epoch: last_seqs.get(epoch, 0) for epoch in before}
    return out.since(former.epoch, former.last_seqs.get(lane, 0), older)


class Adoption:
    """Takes the messages of one lane in; lives as long as the daemon."""

    def __init__(self, lane: str, ledger: Ledger, writer: Writer) -> None:
        self.adopted = 0
        self.looked = False  # since the agent has started
        self.strangers: set[int] = set()
        """Epochs of which OUT holds what the ledger does not know: the hub is asked about them."""
        self._held: dict[int, HeldLane] = {}
        self._handed_in = False  # some were to be written when the connection ended
        self._noted = False  # a note waits to be written
        self._lane = lane
        self._ledger = ledger
        self._writer = writer

    def heard(self, epoch: int, held: HeldLane) -> bool:
        """Take in what the hub holds of an epoch; return whether it is one that waits for that."""
        if epoch not in self.strangers:
            return False
        self._held[epoch] = held
        if held.over:
            self._writer.gate.over.add(epoch)
        return True

    @property
    def due(self) -> bool:
        """Whether the hub has spoken of an epoch that is to be taken in."""
        return bool(self._held)

    async def look(self, out: OutStream) -> None:
        """Find the epochs of which OUT holds what this ledger does not know."""
        await out.index()
        self.looked = True
        self.strangers = {work.epoch for work in unknown(out.runs, self._last_seqs())}

    async def take_in(self, out: OutStream, *, everything: bool = False) -> None:
        """Take into the ledger what it does not know, of epochs that the hub has spoken of.

        ``everything``: of all epochs, because OUT is about to be purged. Messages that the hub holds for
        certain are left out: the hash of its last one is that of the message in OUT.
        """
        if self._handed_in:  # the ledger is not asked what it knows before it has them
            await self._writer.all_written()
            self._handed_in = False
        await out.index()
        works = unknown(out.runs, self._last_seqs())
        spoken = set(self._held)  # more may come while these are taken in
        current = [work for work in works if work.epoch == self._ledger.epoch]
        if current:
            # Only a former epoch can be longer than the ledger knows: a new one begins with this commit.
            self._writer.gate.epochs.behind(f"OUT holds more of {self._lane} than the ledger")
            await self._writer.set_aside([], [])
        for work in works:
            if everything or work.epoch in spoken or work.epoch not in self.strangers:
                await self._adopt(out, work)
                # Where the hub holds all of it: what UP loses of it would come later than what is newer.
                self._writer.tell(*self._writer.gate.end(work.epoch))
        if self._noted:  # OUT may be emptied next, and nothing else would tell the next run of them
            await self._writer.set_aside([], [])
            self._noted = False
        taken = spoken if not everything else set(self.strangers)
        self.strangers -= taken
        self._held = {epoch: held for epoch, held in self._held.items() if epoch not in taken}

    def _last_seqs(self) -> dict[int, int]:
        lanes = self._ledger.every_lane()
        return {lane.epoch: lane.last_seq for lane in lanes if lane.name == self._lane}

    async def _adopt(self, out: OutStream, work: Work) -> None:
        self._note(out, work)
        held = self._held.get(work.epoch)
        if held is not None and await self._is_held(out, work, held):
            work = work._replace(
                lo=held.seq + 1, stream_seq=work.stream_seq + held.seq + 1 - work.lo
            )
        while work.lo <= work.hi:
            some, rest = work.split(ADOPT_ROWS)
            rows = await self._sound(out, some)
            # One message after the other: what is missing between them is looked for by the hub.
            if rows:
                self._handed_in = True
                adopted = [Adopted(self._lane, some.epoch, rows)]
                words = self._writer.gate.end(some.epoch)
                await self._writer.apply(Inward(messages=words, adopted=adopted))
                self._handed_in = False
                self.adopted += len(rows)
                log.warning(
                    "out_adopted", lane=self._lane, epoch=some.epoch,
                    first=rows[0].seq, last=rows[-1].seq, messages=len(rows),
                )  # fmt: skip
            if rest is None:
                return
            work = rest

    def _note(self, out: OutStream, work: Work) -> None:
        """Have it remembered that a newer ledger may have sent staged rows with these messages.

        From the next commit on, which writes this, the ledger knows those that it takes in like its own.
        """
        for former in self._writer.gate.unconfirmed.formers:
            if work.epoch in sent_since(out, self._ledger, self._lane, former):
                former.note_taken_in(self._lane, work.epoch, work.lo, work.hi)
                self._noted = True

    async def _is_held(self, out: OutStream, work: Work, held: HeldLane) -> bool:
        """Whether the hub's message at its watermark is the one that stands in OUT, with those before it."""
        if held.hash is None or not work.lo <= held.seq <= work.hi:
            return False
        at = work.stream_seq + held.seq - work.lo
        one = work._replace(lo=held.seq, hi=held.seq, stream_seq=at)
        return any(
            hash_of(row.subject, row.body) == held.hash
            # One that names none before it, as in a spare epoch, speaks for itself alone.
            and (held.seq == work.lo or peek(row.body).link != NO_LINK)
            for row in await self._sound(out, one)
        )

    async def _sound(self, out: OutStream, work: Work) -> list[LedgerRow]:
        """Return the messages of ``work`` that can be read, and those whose dictionary is not on this vehicle."""
        sound = []
        for row in await out.rows(work):
            try:
                times = await self._proven(row, out)
            except SubjectError:
                continue
            except CodecError as error:
                if error.code != "dictionary":
                    continue
                times = None  # the hub can prove it, and holds what it is packed against
            sound.append(row._replace(times=times))
        return sound

    async def _proven(self, row: LedgerRow, out: OutStream) -> tuple[int, int] | None:
        """Return the earliest and the latest time of a message's points. Raises: CodecError, SubjectError."""
        place = parse_leaf(row.subject)
        packer = self._writer.packer
        body = await plain_body(row.body, out, packer)
        header = check_addressed(place, body)
        if header.kind is Kind.DICTIONARY:
            packer.learn(read_dictionary(body), header.epoch, header.seq)
        if header.kind not in (Kind.FRAME, Kind.BUNDLE):
            return None
        found = survey(body)
        return found.t_lo, found.t_hi
