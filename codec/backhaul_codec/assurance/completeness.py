"""Judge hours: whether all that a vehicle acknowledged in an hour is held, or why not.

Hub and history judge by this one rule. Sequence numbers alone say that nothing is missing *below*
the newest message; a vehicle's marks say how far each lane was at a time, so that an hour can be
closed. Between two marks that follow one another in a ledger stands everything acknowledged
between their times, and nothing else. No I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

from backhaul_codec.kinds import LIVE
from backhaul_codec.ranges import RangeSet

HOUR_NS = 3_600_000_000_000

HourState = Literal["complete", "explained", "waiting", "imported", "erased"]

NO_MARK_AFTER = "the vehicle has not spoken since this hour"
IMPORT_UNFINISHED = "an import of this hour was not finished: run the same import again"
ERASED = "nothing is kept of this vehicle, on request"
ALSO_IMPORTED = "readings of this hour were imported as well"
TWO_MACHINES = (
    "two machines wrote in this epoch; of the other one's messages it is not known which are here"
)
LEDGER_GONE = "a new epoch took over; whether this one kept more and never sent it is unknown"


@dataclass(frozen=True, slots=True)
class Mark:
    """Hold a vehicle's word: at `time_ns` its lanes were at these seqs.

    All that was acknowledged before stands in seqs up to them, all that came after in later ones.
    `epoch` and `seq` are of the message that says it; `why` is start, hour, link or stop.
    `chain`: by lane the hash of its message at that seq, in hex, where the vehicle has said it.
    """

    time_ns: int
    epoch: int
    seq: int
    lanes: Mapping[str, int]
    why: str = ""
    chain: Mapping[str, str] = field(default_factory=dict)


class LaneId(NamedTuple):
    """Name a lane of one device in one incarnation of its ledger."""

    lane: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """Hold the facts of a lane: the seqs held, the receipts, the highest seq ever heard of.

    `receipts` are (low, high, reason), ascending, none overlapping another: see `disjoint`.
    `forked`: the first seq that two machines may have written, 0 for none.
    """

    held: RangeSet = field(default_factory=RangeSet)
    receipts: Sequence[tuple[int, int, str]] = ()
    highest: int = 0
    forked: int = 0


class Missing(NamedTuple):
    """Name seqs that are neither held nor explained."""

    lane: str
    epoch: int
    low: int
    high: int


class Reasoned(NamedTuple):
    """Name seqs that will not come, and why. `high` 0: from `low` on, how many is unknown."""

    lane: str
    epoch: int
    low: int
    high: int
    reason: str


class Ends(NamedTuple):
    """Name the bounds of a lane's messages of an hour: the last before them, and the last of them.

    Both as the vehicle has said it, each with its hash in hex ("" where it has not). `high` None: it has
    not spoken since.
    """

    lane: str
    epoch: int
    low: int
    low_hash: str
    high: int | None
    high_hash: str


@dataclass(frozen=True, slots=True)
class HourReport:
    """Say how it stands with one hour of one device.

    `complete`: every seq of the hour is held. `explained`: all that is not held has its reason.
    `waiting`: something is missing, or nobody can know yet (`why` says so). `imported`: all that was
    imported of it is held, and no vehicle has spoken of it. `erased`: nothing is kept of the vehicle, on request.
    """

    hour_ns: int
    state: HourState
    epochs: tuple[int, ...]
    missing: tuple[Missing, ...] = ()
    explained: tuple[Reasoned, ...] = ()
    why: str = ""
    chain: tuple[Ends, ...] = ()


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch between two marks: its times, and the seqs that stand in it."""

    start_ns: int
    end_ns: int | None
    """None: nobody has spoken since."""
    epoch: int
    lows: Mapping[str, int]
    """By lane: the last seq before."""
    highs: Mapping[str, int] | None
    """By lane: the last seq; None: whatever is known of the epoch."""
    gone: bool = False
    """Whether the ledger went away in it, and nobody knows how far it was."""
    vague: bool = False
    """Whether ledgers that never marked anything may have spoken in it."""
    low_hashes: Mapping[str, str] = field(default_factory=dict)
    high_hashes: Mapping[str, str] = field(default_factory=dict)
    """By lane, of the messages at its ends, where the vehicle has said them."""

    def touches(self, start_ns: int, end_ns: int) -> bool:
        if self.start_ns >= end_ns:
            return False
        return self.end_ns is None or self.end_ns > start_ns or self.start_ns >= start_ns


def report_hours(
    marks: Iterable[Mark],
    lanes: Mapping[LaneId, LaneRecord],
    hours: Iterable[int],
    imported: Mapping[int, bool] | None = None,
) -> list[HourReport]:
    """Return a completeness report for each of `hours`, in their order.

    An hour is one of the time in which the vehicle acknowledged, by its corrected clock. Hours
    before that of the first mark are left out: nobody has spoken of them. Whatever stands in a
    ledger before its first mark belongs to the hour of that mark.

    Args:
        marks: of one device, in any order. The first of them is taken for the first ever: give
            all there are, or do not ask for its hour.
        lanes: all lanes of that device, of every epoch that anybody has heard of.
        hours: their beginnings, ns since the Unix epoch.
        imported: hours, by their own times, of which readings were imported, and whether all of them
            are held. Of an hour of which no vehicle has spoken nobody can say more than that.
    """
    wanted, imported = list(hours), imported or {}
    touched: dict[int, list[_Span]] = {hour_ns: [] for hour_ns in wanted}
    if not wanted:
        return []
    spans = _all_spans(marks, lanes)
    first_ns = min((span.start_ns for span in spans), default=max(wanted) + HOUR_NS)
    for span in spans:
        for hour_ns in _hours_of(span, max(wanted)):
            if hour_ns in touched and span.touches(hour_ns, hour_ns + HOUR_NS):
                touched[hour_ns].append(span)
    return [
        _hour_report(hour_ns, touched[hour_ns], lanes, also=hour_ns in imported)
        if hour_ns + HOUR_NS > first_ns
        else _imported(hour_ns, all_held=imported[hour_ns])
        for hour_ns in wanted
        if hour_ns + HOUR_NS > first_ns or hour_ns in imported
    ]


def hours_between(from_ns: int, to_ns: int) -> range:
    """Return the beginnings of the hours that begin in `from_ns <= hour < to_ns`."""
    return range(-(-from_ns // HOUR_NS) * HOUR_NS, to_ns, HOUR_NS)


def lane_records(
    held: Mapping[LaneId, RangeSet],
    receipts: Mapping[LaneId, Iterable[tuple[int, int, str]]],
    said: Iterable[tuple[int, Mapping[str, int]]],
    forked: Mapping[LaneId, int] | None = None,
) -> dict[LaneId, LaneRecord]:
    """Bring together the facts of a device's lanes.

    Args:
        held: the seqs that are held.
        receipts: (low, high, reason), in the order in which they came.
        said: (epoch, last seq by lane) of every mark, and of every word that an epoch is over.
        forked: the first seq that two machines may have written, of lanes where two have.
    """
    forked = forked or {}
    highest = {id_: ranges.highest for id_, ranges in held.items()}
    for epoch, lanes in said:
        # An epoch that is only named is known to have been.
        highest.setdefault(LaneId(LIVE, epoch), 0)
        for lane, seq in lanes.items():
            id_ = LaneId(lane, epoch)
            highest[id_] = max(highest.get(id_, 0), seq)
    for id_ in receipts:
        highest.setdefault(id_, 0)
    return {
        id_: LaneRecord(
            *(held.get(id_) or RangeSet(), disjoint(receipts.get(id_, ())), seq, forked.get(id_, 0))
        )
        for id_, seq in highest.items()
    }


def disjoint(receipts: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return receipts as a LaneRecord has them; of two words on one seq the first stands."""
    told = RangeSet()
    found: list[tuple[int, int, str]] = []
    for first, last, reason in receipts:
        found += [(low, high, reason) for low, high in told.holes(first, last)]
        told.add(first, last)
    return sorted(found)


def _all_spans(marks: Iterable[Mark], lanes: Mapping[LaneId, LaneRecord]) -> list[_Span]:
    """Return the spans of a device's life, those of ledgers that never marked anything included."""
    spans = list(_spans(marks))
    silent = {id_.epoch for id_ in lanes} - {span.epoch for span in spans}
    return spans + [
        _Span(span.start_ns, span.end_ns, epoch, {}, None, gone=True)
        for span in spans
        if span.vague
        for epoch in sorted(silent)
    ]


def _hours_of(span: _Span, last_ns: int) -> range:
    """Return the hours that a span may have to do with, up to the last one asked for."""
    end_ns = last_ns if span.end_ns is None else min(span.end_ns, last_ns)
    return range(span.start_ns // HOUR_NS * HOUR_NS, end_ns + 1, HOUR_NS)


def _spans(marks: Iterable[Mark]) -> Iterator[_Span]:
    """Cut a device's life into spans between marks."""
    by_epoch: dict[int, list[Mark]] = {}
    for mark in marks:
        by_epoch.setdefault(mark.epoch, []).append(mark)
    chains = [sorted(chain, key=lambda mark: mark.seq) for chain in by_epoch.values()]
    chains.sort(key=lambda chain: min(mark.time_ns for mark in chain))
    ended_ns: int | None = None
    for number, chain in enumerate(chains):
        first, last = chain[0], chain[-1]
        # Before the first word of a ledger: since the one before it spoke last.
        began_ns = first.time_ns // HOUR_NS * HOUR_NS if ended_ns is None else ended_ns
        began = Mark(began_ns, first.epoch, 0, {})
        yield _span(began, first, vague=ended_ns is None)
        for before, after in pairwise(chain):
            yield _span(before, after)
        if number + 1 == len(chains):
            yield _Span(
                *(last.time_ns, None, last.epoch, last.lanes, None),
                vague=True,
                low_hashes=last.chain,
            )
            return
        # The ledger spoke last, then another one did: it went away in between.
        ended_ns = last.time_ns
        until_ns = chains[number + 1][0].time_ns
        start_ns, end_ns = min(ended_ns, until_ns), max(ended_ns, until_ns)
        yield _Span(
            *(start_ns, end_ns, last.epoch, last.lanes, None),
            gone=True,
            vague=True,
            low_hashes=last.chain,
        )


def _span(before: Mark, after: Mark, *, vague: bool = False) -> _Span:
    # A clock that was set back makes the later mark the earlier one.
    start_ns, end_ns = sorted((before.time_ns, after.time_ns))
    return _Span(
        *(start_ns, end_ns, after.epoch, before.lanes, after.lanes),
        vague=vague,
        low_hashes=before.chain,
        high_hashes=after.chain,
    )


def _imported(hour_ns: int, *, all_held: bool) -> HourReport:
    return HourReport(
        hour_ns,
        "imported" if all_held else "waiting",
        (),
        why="" if all_held else IMPORT_UNFINISHED,
    )


def _hour_report(
    hour_ns: int, spans: Sequence[_Span], lanes: Mapping[LaneId, LaneRecord], *, also: bool
) -> HourReport:
    missing: list[Missing] = []
    explained: list[Reasoned] = []
    for span in spans:
        for id_, record in _lanes_of(span, lanes):
            low = span.lows.get(id_.lane, 0) + 1
            # A lane that the later mark does not know of is judged as far as anybody knows.
            high = (
                record.highest if span.highs is None else span.highs.get(id_.lane, record.highest)
            )
            _judge(id_, record, low, high, missing, explained)
            if 0 < record.forked <= high:
                first = max(low, record.forked)
                explained.append(Reasoned(*id_, first, high if high >= first else 0, TWO_MACHINES))
            if span.gone:
                above = max(low, record.highest + 1)
                explained.append(Reasoned(*id_, above, 0, LEDGER_GONE))
    open_ended = any(span.end_ns is None for span in spans) or not spans
    state: HourState = (
        "waiting" if missing or open_ended else "explained" if explained else "complete"
    )
    return HourReport(
        hour_ns,
        state,
        tuple(dict.fromkeys(span.epoch for span in spans)),
        tuple(missing),
        tuple(explained),
        "; ".join([NO_MARK_AFTER] * open_ended + [ALSO_IMPORTED] * also),
        tuple(_ends(spans)),
    )


def _ends(spans: Sequence[_Span]) -> Iterator[Ends]:
    """Return the bounds of each lane's messages, for lanes of which a hash was said."""
    by_epoch: dict[int, list[_Span]] = {}
    for span in spans:
        by_epoch.setdefault(span.epoch, []).append(span)
    for epoch, several in by_epoch.items():
        first, last = several[0], several[-1]
        for lane in sorted({*first.low_hashes, *last.high_hashes}):
            high = None if last.highs is None else last.highs.get(lane)
            low_hash, high_hash = first.low_hashes.get(lane, ""), last.high_hashes.get(lane, "")
            yield Ends(lane, epoch, first.lows.get(lane, 0), low_hash, high, high_hash)


def _lanes_of(
    span: _Span, lanes: Mapping[LaneId, LaneRecord]
) -> Iterator[tuple[LaneId, LaneRecord]]:
    """Return the lanes that a span has seqs of, those included that nothing was ever heard of."""
    names = {id_.lane for id_ in lanes if id_.epoch == span.epoch}
    for name in sorted(names | set(span.highs or span.lows)):
        id_ = LaneId(name, span.epoch)
        yield id_, lanes.get(id_) or LaneRecord(highest=span.lows.get(name, 0))


def _judge(
    id_: LaneId,
    record: LaneRecord,
    low: int,
    high: int,
    missing: list[Missing],
    explained: list[Reasoned],
) -> None:
    """Add the part of `low..high` that is not held to the missing or the explained seqs."""
    at = bisect_left(record.receipts, low, key=itemgetter(1))
    for start, end in record.held.holes(low, high):
        while at < len(record.receipts) and record.receipts[at][1] < start:
            at += 1
        next_ = start
        for first, last, reason in islice(record.receipts, at, None):
            if first > end:
                break
            if first > next_:
                missing.append(Missing(*id_, next_, first - 1))
            explained.append(Reasoned(*id_, max(first, next_), min(last, end), reason))
            next_ = last + 1
        if next_ <= end:
            missing.append(Missing(*id_, next_, end))
