"""Read the messages of a device that the hub's streams hold and points does not: ingest has not been at them yet.

The boundary is no time and no position: a message counts here if coverage, as of the same ingest, does not have its
place in its lane. So a message that came late, one that was sent again, and one that was set aside are each told
once. The position of ingest only says from where on to look.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.subjects import IMPORT, IMPORT_STREAM
from backhaul_spark.decode.points import decode_batch, partition_days
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.errors import HubServerError, LoginRefusedError
from backhaul_spark.nats.dictionaries import CODE as WAITING_CODE
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.direct_get import Reader, borrowed
from backhaul_spark.nats.endpoint import Endpoint
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.offsets import ReadMark
from backhaul_spark.nats.stored import StreamInfo
from backhaul_spark.rollup.read import DTYPES, LETTERS
from backhaul_spark.rollup.rows import INPUT
from backhaul_spark.serve.kept_tails import KeptTail, KeptTails
from backhaul_spark.serve.series_rows import AnswerTime
from backhaul_spark.serve.view import View

STREAMS = ["UP_*", "IMPORT*"]
MESSAGES_MAX = 50_000
"""Of a device, for one answer."""
_SETTLED_MAX = 10_000
LOOK = 10_000
"""If ingest is behind by so many messages of a stream, those are passed over that are too old for the question."""
_AHEAD_US = 86_400_000_000
"""No reading of a message is stamped later than so long after the hub stored it (decode/points.py)."""


KEPT_BYTES = 64 << 20
"""Messages that are kept for the next question, of all devices."""


@dataclass(slots=True)
class UpTail:
    """The readings of a series that are in no table yet (columns INPUT), and two facts about the rest.

    `aside`: messages of the device that nobody can read before their dictionary comes. `cut`: when the hub stored
    the last message that was read (µs since 1970), where there are more than an answer reads; None: that was all.
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    aside: int = 0
    cut: int | None = None


class TailReader:
    """Reads tails, for several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dictionaries = DictionaryReader(endpoint)
        # Decoded messages may be some hundred times as large: of one question at a time.
        self._decoding = threading.Lock()
        self._settled: set[tuple[str, int]] = set()
        self._kept = KeptTails(KEPT_BYTES)

    def read(self, series: OneSeries, view: View, budget: AnswerTime, from_us: int = 0) -> UpTail:
        """Return the tail of a series; readings of before `from_us` (µs since 1970) may be left out.

        Raises:
            HubServerError: the hub does not answer.
            QuestionError: it took too long.
        """
        try:
            return self._read(series, view, budget, from_us)
        except LoginRefusedError:
            raise
        except HubServerError:
            # A connection that has stood idle may be gone; a cluster's server behind for a moment.
            return self._read(series, view, budget, from_us)

    def _read(self, series: OneSeries, view: View, budget: AnswerTime, from_us: int) -> UpTail:
        found = _Found(series, view)
        with borrowed(self._endpoint) as reader:
            for stream, seq in view.aside:
                if (stream, seq) not in self._settled:
                    for part in reader.read_subject(stream, seq, seq, ">"):
                        self._take(found, message_batch(stream, part))
            self._note_settled(found, view)
            left = MESSAGES_MAX
            for name, info in reader.streams(STREAMS).items():
                place = IMPORT if name == IMPORT_STREAM else "up"
                subject = f"{place}.{series.device}.>"
                floor = start = _start(reader, info, (view.marks or {}).get(name))
                if info.last_seq - start >= LOOK:
                    since = reader.first_since(name, max(0, from_us - _AHEAD_US))
                    # None may be the word of a cluster's server that lags behind.
                    start = max(start, since or start)
                span = _Span(info, floor, start, subject, series.device)
                for batch in self._messages(reader, span, budget):
                    self._take(found, batch)
                    left -= batch.num_rows
                    if left <= 0:
                        stored = batch.column("stored_at").cast(pa.int64())
                        found.tail.cut = stored[-1].as_py()
                        return found.tail
        return found.tail

    def _messages(
        self, reader: Reader, span: _Span, budget: AnswerTime
    ) -> Iterator[pa.RecordBatch]:
        """Yield a device's messages of a stream, those that an earlier question has read out of memory."""
        info, device = span.info, span.device
        name = info.name
        kept = self._kept.find(
            device, name, created=info.created, start=span.start, last=info.last_seq
        )
        if kept is not None and (later := _later(reader, span, kept, budget)) is not None:
            grown = KeptTail(kept.created, kept.start, (*kept.batches, *later))
            self._kept.keep(device, name, grown, span.floor)
            yield from grown.from_(span.start)
            return
        read: list[pa.RecordBatch] = []
        for part in reader.read_subject(name, span.start, info.last_seq, span.subject):
            budget.check()
            batch = message_batch(name, part)
            read.append(batch)
            yield batch
        # Where there is more than an answer reads, nobody comes here.
        self._kept.keep(device, name, KeptTail(info.created, span.start, tuple(read)), span.floor)

    def _take(self, found: _Found, batch: pa.RecordBatch) -> None:
        fresh = found.fresh(batch)
        if fresh.num_rows:
            with self._decoding:
                for points, waiting in _decoded(fresh, self._dictionaries):
                    found.take(points)
                    found.tail.aside += waiting

    def _note_settled(self, found: _Found, view: View) -> None:
        """Remember the messages that were taken up: points holds them for ever."""
        if len(self._settled) > _SETTLED_MAX:
            self._settled.clear()
        self._settled |= found.covered & set(view.aside)


@dataclass(frozen=True, slots=True)
class _Span:
    """A device's messages of a stream: where ingest has not been from `floor` on, and `start` on is of interest."""

    info: StreamInfo
    floor: int
    start: int
    subject: str
    device: str


def _later(
    reader: Reader, span: _Span, kept: KeptTail, budget: AnswerTime
) -> list[pa.RecordBatch] | None:
    """Return the messages that came since some were kept; None where the last of those is not there any more."""
    found: list[pa.RecordBatch] = []
    begun = False
    last, subject = span.info.last_seq, span.subject
    for part in reader.read_subject(span.info.name, kept.last[0], last, subject):
        budget.check()
        batch = message_batch(span.info.name, part)
        if not begun:
            batch = kept.after(batch)
            if batch is None:
                return None
            begun = True
        if batch.num_rows:
            found.append(batch)
    return found if begun else None


class _Found:
    def __init__(self, series: OneSeries, view: View) -> None:
        self._series, self._view = series, view
        self._seen: set[tuple[str, int, int]] = set()
        self.covered: set[tuple[str, int]] = set()
        self.tail = UpTail()

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of the device that neither points holds nor this has had."""
        names = ("code", "device", "lane", "epoch", "seq", "stream", "stream_seq")
        columns = (batch.column(name).to_pylist() for name in names)
        keep = []
        for code, device, lane, epoch, seq, stream, place in zip(*columns, strict=True):
            new = code is None and device == self._series.device
            if new and self._view.covers(lane, epoch, seq):
                self.covered.add((stream, place))
                new = False
            new = new and (lane, epoch, seq) not in self._seen
            if new:
                self._seen.add((lane, epoch, seq))
            keep.append(new)
        return batch.filter(pa.array(keep, pa.bool_()))

    def take(self, points: pa.RecordBatch) -> None:
        """Take the readings of the series out of decoded points."""
        wanted = pc.is_in(points.column("letter").cast(pa.string()), value_set=LETTERS)
        wanted = pc.and_(wanted, pc.is_in(points.column("dtype"), value_set=DTYPES))
        alive = pc.equal(pc.bit_wise_and(points.column("tombstone"), 1), 0)
        wanted = pc.and_(wanted, alive)
        for name, value in self._series._asdict().items():
            wanted = pc.and_(wanted, pc.equal(points.column(name).cast(pa.string()), value))
        timed = pa.array(np.asarray(partition_days(points)) > 0)
        rows = points.filter(pc.and_(wanted, timed))
        if rows.num_rows:
            self.tail.batches.append(rows.select(list(INPUT)))


def _decoded(
    batch: pa.RecordBatch, dictionaries: DictionaryReader
) -> Iterator[tuple[pa.RecordBatch, int]]:
    for decoded in decode_batch(batch, dictionaries):
        waiting = sum(code == WAITING_CODE for code, _ in decoded.rejected.values())
        yield decoded.points, waiting


def _start(reader: Reader, info: StreamInfo, mark: ReadMark | None) -> int:
    """Return from where on a stream has messages that ingest may not have read.

    From its start where it is another one than ingest has read, or its store went back in time.
    """
    if mark is None or mark.created != info.created or info.last_seq < mark.seq:
        return info.first_seq
    if mark.stamp and mark.seq >= info.first_seq:
        for part in reader.read_subject(info.name, mark.seq, mark.seq, ">"):
            if part.times[0] != mark.stamp:
                return info.first_seq
    return max(info.first_seq, mark.seq + 1)
