"""Decide the next reading: offsets, admission and gaps. Pure; the data source asks the server.

An offset is a mark per stream: the last sequence that was read, plus what identifies the stream
that it was read from. A stream that was deleted and made again, or whose store went back in time
(a power cut at the hub), has other messages under the same numbers. Compared by number alone, the
reader would find nothing above its mark, or skip what is new, and both without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from backhaul_spark.errors import (
    MessagesGoneError,
    OptionError,
    StreamMissingError,
    StreamRecreatedError,
)
from backhaul_spark.nats.stored import StreamInfo

OnGap = Literal["fail", "record"]
VERSION = 1

GAP_RETENTION = "gap_retention"  # limits removed the messages before they were read
GAP_DELETED = "gap_deleted"  # deleted inside a range, or at the end of one that was planned
GAP_RECREATED = "gap_recreated"  # the whole stream is another one; how much is lost is unknown
GAP_REWOUND = "gap_rewound"  # the stream's store went back in time; likewise unknown


@dataclass(frozen=True, slots=True)
class ReadMark:
    """How far a stream has been read: `seq` is the last sequence read, 0 for none.

    `stamp` is when the server stored that message (as the server writes it, "" if unknown): a
    cheap proof that number and message still belong together. `rewound` counts how often they
    did not, so that two marks tell whether the stream was started over between them.
    """

    seq: int
    created: str
    stamp: str = ""
    rewound: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences `lo` to `hi` (both included) of a stream: to read, or missing if `gap` says why.

    A gap of unknown size has `hi` = `lo` - 1.
    """

    stream: str
    lo: int
    hi: int
    gap: str = ""

    @property
    def count(self) -> int:
        """How many sequences; 0 when unknown."""
        return self.hi - self.lo + 1


Marks = dict[str, ReadMark]


def to_json(marks: Mapping[str, ReadMark]) -> dict[str, Any]:
    """Return the offset as Spark keeps it in the checkpoint."""
    return {"version": VERSION, "streams": {name: asdict(mark) for name, mark in marks.items()}}


def from_json(offset: Mapping[str, Any]) -> Marks:
    """Read an offset back; an offset of another version is refused, never guessed at."""
    if offset.get("version") != VERSION:
        raise OptionError("checkpoint", offset.get("version"), f"offset version {VERSION}")
    return {name: ReadMark(**mark) for name, mark in offset["streams"].items()}


def initial(streams: Mapping[str, StreamInfo], starting: str) -> Marks:
    """Return the start of a new query: `earliest` still there, or `latest` (only new messages)."""
    if starting not in ("earliest", "latest"):
        raise OptionError("starting", starting, "earliest or latest")
    return {
        name: ReadMark(
            info.last_seq if starting == "latest" else max(0, info.first_seq - 1), info.created
        )
        for name, info in streams.items()
    }


def share(backlogs: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide `limit` messages over streams so that small backlogs drain first and none starves."""
    granted = dict.fromkeys(backlogs, 0)
    waiting = sorted(
        (name for name in backlogs if backlogs[name] > 0), key=lambda n: (backlogs[n], n)
    )
    left = limit
    for index, name in enumerate(waiting):
        granted[name] = min(
            backlogs[name], max(1, left // (len(waiting) - index)) if left > 0 else 0
        )
        left -= granted[name]
    return granted


def advance(
    start: Mapping[str, ReadMark],
    streams: Mapping[str, StreamInfo],
    *,
    rewound: frozenset[str] = frozenset(),
    limit: int | None = None,
    target: Mapping[str, ReadMark] | None = None,
    on_gap: OnGap = "fail",
) -> Marks:
    """Return the end of the next batch: every stream's mark moved on by at most its share.

    Args:
        start: the end of the last batch.
        streams: what the server has now.
        rewound: streams whose message at the mark is not the one that was read.
        limit: messages over all streams; None reads everything there is.
        target: with availableNow, the marks that this run must not pass.
        on_gap: what to do with a stream that is not the one of `start`.

    Raises:
        StreamMissingError: a stream of `start` is gone.
        StreamRecreatedError: it is another one now, and `on_gap` is "fail".
    """
    base: Marks = {}
    for name, mark in start.items():
        if name not in streams:
            raise StreamMissingError(name)
        base[name] = _continued(name, mark, streams[name], name in rewound, on_gap)
    for name, info in streams.items():
        base.setdefault(name, ReadMark(0, info.created))
    ends = {name: streams[name].last_seq for name in base}
    if target is not None:
        for name, mark in base.items():
            goal = target.get(name)
            same = goal is not None and goal.created == mark.created
            ends[name] = min(ends[name], goal.seq) if same and goal is not None else mark.seq
    backlogs = {name: max(0, ends[name] - mark.seq) for name, mark in base.items()}
    granted = backlogs if limit is None else share(backlogs, limit)
    return {
        name: replace(mark, seq=mark.seq + granted[name], stamp="") if granted[name] else mark
        for name, mark in base.items()
    }


def _continued(
    name: str, mark: ReadMark, info: StreamInfo, rewound: bool, on_gap: OnGap
) -> ReadMark:
    recreated = mark.created != info.created
    if not (recreated or rewound):
        return mark
    if on_gap == "fail":
        raise StreamRecreatedError(name, mark.seq, mark.created, info.created)
    # From its start: what the vehicles send again, ingest knows by identity.
    return ReadMark(0, info.created, "", mark.rewound + (0 if recreated else 1))


def spans(
    start: Mapping[str, ReadMark],
    end: Mapping[str, ReadMark],
    streams: Mapping[str, StreamInfo],
    *,
    on_gap: OnGap = "fail",
) -> list[Span]:
    """Return the messages between two offsets: spans to read, and spans that are known to be gone.

    Raises:
        MessagesGoneError, StreamRecreatedError: there are gaps and `on_gap` is "fail".
        StreamMissingError: a stream that there is something to read of is gone.
    """
    found: list[Span] = []
    for name, stop in end.items():
        found += _stream_spans(name, start.get(name), stop, streams.get(name))
    if on_gap == "fail":
        for span in found:
            if span.gap in (GAP_RECREATED, GAP_REWOUND):
                was = start[span.stream]
                raise StreamRecreatedError(
                    span.stream, was.seq, was.created, end[span.stream].created
                )
            if span.gap:
                raise MessagesGoneError(span.stream, span.lo, span.hi)
    return found


def _stream_spans(
    name: str, begin: ReadMark | None, stop: ReadMark, info: StreamInfo | None
) -> list[Span]:
    found: list[Span] = []
    base = begin.seq if begin is not None else 0
    first_ever = False
    if begin is not None and begin.created != stop.created:
        found.append(Span(name, base + 1, base, GAP_RECREATED))
        base, first_ever = 0, True
    elif begin is not None and begin.rewound != stop.rewound:
        found.append(Span(name, base + 1, base, GAP_REWOUND))
        base, first_ever = 0, True
    if base >= stop.seq:
        return found
    if info is None:
        raise StreamMissingError(name)  # no gap: whoever lists streams may not know of it just now
    if info.created != stop.created:
        return [*found, Span(name, base + 1, stop.seq, GAP_RETENTION)]
    first = max(base + 1, info.first_seq)
    # Of a stream that starts over, what its limits already removed is part of the one gap above.
    if first > base + 1 and not first_ever:
        found.append(Span(name, base + 1, min(first - 1, stop.seq), GAP_RETENTION))
    last = min(stop.seq, info.last_seq)
    if first <= last:
        found.append(Span(name, first, last))
    if max(first, last + 1) <= stop.seq:
        found.append(Span(name, max(first, last + 1), stop.seq, GAP_DELETED))
    return found


def cut(
    start: Mapping[str, ReadMark], end: Mapping[str, ReadMark], streams: Mapping[str, StreamInfo]
) -> list[str]:
    """Return the streams that end before their planned end: their stores went back since."""
    return [
        name
        for name, stop in end.items()
        if (info := streams.get(name)) is not None
        and info.created == stop.created
        and info.last_seq < stop.seq
        and start.get(name) != stop
    ]


def split(found: list[Span], partitions: int) -> list[Span]:
    """Cut the spans to read into about `partitions` pieces of equal size; gaps stay whole."""
    total = sum(span.count for span in found if not span.gap)
    size = max(1, -(-total // max(1, partitions)))
    pieces: list[Span] = []
    for span in found:
        if span.gap:
            pieces.append(span)
            continue
        parts = max(1, round(span.count / size))
        step = -(-span.count // parts)
        starts = range(span.lo, span.hi + 1, step)
        pieces += [Span(span.stream, lo, min(lo + step - 1, span.hi)) for lo in starts]
    return pieces
