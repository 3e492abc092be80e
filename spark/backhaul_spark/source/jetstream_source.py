"""The PySpark data source `jetstream`: streams by sequence range, in batch and streaming.

    spark.dataSource.register(JetStreamSource)
    spark.readStream.format("jetstream").option("servers", ...).option("streams", "UP_*").load()

Options, besides those of nats/endpoint.py (servers, user, password, credentials, api, tls_ca):
    streams      names or patterns, separated by commas (default UP_*)
    format       messages (default): one row a message; points: one row a point; samples: what the
                 twin's rules see, packed (rules/samples.py); then also
    signals, heads   series that are wanted, as battery.soc, separated by commas
    buckets      into how many parts devices are divided (default 8)
    starting     earliest (default) or latest, for a new query; then the checkpoint counts
    maxMessages  most messages a micro-batch (default: all there are)
    maxBytes     what they come to at most before compression, about (default 256 MiB; source/weight.py)
    partitions   tasks a batch (default 2)
    onGap        fail (default), or record: a gap becomes a row, and reading goes on

Spark hands option names over in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.decode.points import POINT_ROWS, chunks, point_rows
from backhaul_spark.decode.samples import SAMPLE_ROWS, sample_rows, wanted_from
from backhaul_spark.errors import MessagesGoneError, OptionError
from backhaul_spark.garbage import spare_modules
from backhaul_spark.nats import offsets
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.direct_get import is_held, list_streams, read_range
from backhaul_spark.nats.endpoint import Endpoint, endpoint_from
from backhaul_spark.nats.messages import MESSAGES, gap_batch, message_batch
from backhaul_spark.nats.stored import StreamInfo, holes
from backhaul_spark.source.weight import BATCH_BYTES, last_within

_REWIND_LOOKS, _REWIND_LOOK_S = 15, 1.0

FORMATS = {"messages": MESSAGES, "points": POINT_ROWS, "samples": SAMPLE_ROWS}


class SourceSettings:
    """The options of one source, checked. Travels to the executors inside the readers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        lower = {key.lower(): value for key, value in dict(options).items()}
        self.endpoint: Endpoint = endpoint_from(lower)
        self.patterns = [
            name.strip() for name in lower.get("streams", "UP_*").split(",") if name.strip()
        ]
        self.format = _one_of(lower, "format", "messages", *FORMATS)
        self.on_gap = _one_of(lower, "ongap", "fail", "fail", "record")
        self.starting = _one_of(lower, "starting", "earliest", "earliest", "latest")
        self.partitions = _positive(lower, "partitions", 2)
        self.max_messages = _positive(lower, "maxmessages", 0)
        self.max_bytes = _positive(lower, "maxbytes", BATCH_BYTES)
        self.wanted = wanted_from(
            lower.get("signals", ""), lower.get("heads", ""), _positive(lower, "buckets", 8)
        )

    def streams(self) -> dict[str, StreamInfo]:
        """Ask the hub for its streams. Driver."""
        return list_streams(self.endpoint, self.patterns)


class SpanPartition(InputPartition):
    """One task's share: a span of one stream."""

    def __init__(self, span: offsets.Span) -> None:
        self.span = span


class JetStreamSource(DataSource):
    """The data source that Spark knows as `jetstream`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the schema of the format asked for. Driver."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(FORMATS[SourceSettings(self.options).format])

    def reader(self, schema: StructType) -> JetStreamReader:
        """Return the batch reader. Driver."""
        return JetStreamReader(SourceSettings(self.options))

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:
        """Return the streaming reader. Driver."""
        return JetStreamStreamReader(SourceSettings(self.options))


class JetStreamReader(DataSourceReader):
    """Everything that is in the streams now, once."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the streams' contents into spans. Driver."""
        streams = self._settings.streams()
        start = offsets.initial(streams, "earliest")
        end = offsets.advance(start, streams)
        found = offsets.spans(start, end, streams)
        return [SpanPartition(span) for span in offsets.split(found, self._settings.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one span. Executor."""
        assert isinstance(partition, SpanPartition)
        return read_span(self._settings, partition.span)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches between offsets. Lives in the driver's planner process; `read` in the workers."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._target: offsets.Marks | None = None
        self._cut: offsets.Marks = {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the `maxMessages` option as Spark's read limit. Driver."""
        most = self._settings.max_messages
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts. Driver."""
        marks = offsets.initial(self._settings.streams(), self._settings.starting)
        return offsets.to_json({name: self._stamped(name, mark) for name, mark in marks.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end for availableNow. Driver."""
        streams = self._settings.streams()
        self._target = {
            name: offsets.ReadMark(i.last_seq, i.created) for name, i in streams.items()
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, at most `limit` messages on. Driver."""
        marks = offsets.from_json(start)
        streams = self._settings.streams()
        end = offsets.advance(
            marks,
            streams,
            rewound=self._rewound(marks, streams),
            limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            target=self._target,
            on_gap=self._settings.on_gap,  # type: ignore[arg-type]  # checked in Settings
        )
        end = self._within_bytes(marks, end, streams)
        return offsets.to_json({name: self._stamped(name, mark) for name, mark in end.items()})

    def _within_bytes(
        self, start: offsets.Marks, end: offsets.Marks, streams: Mapping[str, StreamInfo]
    ) -> offsets.Marks:
        """Have each stream end where its part of the batch's bytes does."""
        found = offsets.spans(start, end, streams, on_gap="record")
        due = [span for span in found if not span.gap]
        cut = dict(end)
        for span in due:
            last = last_within(
                span.lo,
                span.hi,
                self._settings.max_bytes // len(due),
                partial(self._bodies, span.stream),
            )
            if last < span.hi:
                cut[span.stream] = replace(end[span.stream], seq=last, stamp="")
        return cut

    def _bodies(self, stream: str, lo: int, hi: int) -> Iterator[tuple[int, bytes]]:
        for part in read_range(self._settings.endpoint, stream, lo, hi):
            yield from zip(part.seqs, part.bodies, strict=True)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the range between two offsets into spans. Driver."""
        begin, stop = offsets.from_json(start), offsets.from_json(end)
        streams = self._settings.streams()
        for name in offsets.cut(begin, stop, streams):
            streams[name] = self._believed(streams[name], stop[name].seq)
        # Of these the next batch starts over, whatever is there by then: should a leader have been
        # believed wrongly, what it lacked is read after all.
        self._cut = {name: stop[name] for name in offsets.cut(begin, stop, streams)}
        found = offsets.spans(
            begin,
            stop,
            streams,
            on_gap=self._settings.on_gap,  # type: ignore[arg-type]  # checked in Settings
        )
        return [SpanPartition(span) for span in offsets.split(found, self._settings.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one span. Executor."""
        assert isinstance(partition, SpanPartition)
        return read_span(self._settings, partition.span)

    def _rewound(self, marks: offsets.Marks, streams: Mapping[str, StreamInfo]) -> frozenset[str]:
        """Find streams that hold another message, or none yet, where the mark's message was."""
        found = set()
        for name, mark in marks.items():
            info = streams.get(name)
            if info is None or info.created != mark.created:
                continue
            if self._cut.get(name) == mark:
                found.add(name)
                continue
            info = self._believed(info, mark.seq)
            # Also where the mark has no stamp: between being told of that message and looking at it
            # the stream went back, and now it holds another.
            if info.last_seq < mark.seq or (
                0 < mark.seq >= info.first_seq
                and self._stamp(name, mark.seq) not in ("", mark.stamp)
            ):
                found.add(name)
        return frozenset(found)

    def _believed(self, info: StreamInfo, seq: int) -> StreamInfo:
        """Ask again whether a cluster's stream lags behind the last reading of it.

        A leader that is cut off from the others believes in itself for some ten seconds.
        """
        for _ in range(_REWIND_LOOKS):
            if info.last_seq >= seq or info.replicas == 1:
                break
            SYSTEM_CLOCK.sleep(_REWIND_LOOK_S)
            info = self._settings.streams().get(info.name, info)
        return info

    def _stamped(self, name: str, mark: offsets.ReadMark) -> offsets.ReadMark:
        if mark.stamp or not mark.seq:
            return mark
        return offsets.ReadMark(mark.seq, mark.created, self._stamp(name, mark.seq), mark.rewound)

    def _stamp(self, stream: str, seq: int) -> str:
        for part in read_range(self._settings.endpoint, stream, seq, seq):
            return part.times[0]
        return ""


def read_span(settings: SourceSettings, span: offsets.Span) -> Iterator[pa.RecordBatch]:
    """Yield a span's messages in the format asked for; a gap as its row. Executor.

    Raises:
        MessagesGoneError: messages were deleted inside the span, and `onGap` is "fail".
    """
    spare_modules("read")
    dictionaries = DictionaryReader(settings.endpoint)
    for batch in _message_batches(settings, span):
        if settings.format == "points":
            yield from point_rows(batch, dictionaries)
        elif settings.format == "samples":
            # Each part for itself: what the rules see of one is in memory at a time.
            yield from (sample_rows(part, settings.wanted, dictionaries) for part in chunks(batch))
        else:
            yield batch


def _message_batches(settings: SourceSettings, span: offsets.Span) -> Iterator[pa.RecordBatch]:
    if span.gap and not _is_held(settings, span):
        yield gap_batch(span)
        return
    expected = span.lo
    for part in read_range(settings.endpoint, span.stream, span.lo, span.hi):
        for lo, hi in holes(part.seqs, expected):
            yield _deleted(settings, span.stream, lo, hi)
        expected = part.seqs[-1] + 1
        yield message_batch(span.stream, part)
    if expected <= span.hi:
        yield _deleted(settings, span.stream, expected, span.hi)


def _is_held(settings: SourceSettings, span: offsets.Span) -> bool:
    """Tell whether it was only the stream's leader that lacked a span when the batch was planned."""
    if span.gap not in (offsets.GAP_RETENTION, offsets.GAP_DELETED):
        return False  # of a stream that is another one now
    return is_held(settings.endpoint, span.stream, span.lo, span.hi)


def _deleted(settings: SourceSettings, stream: str, lo: int, hi: int) -> pa.RecordBatch:
    if settings.on_gap == "fail":
        raise MessagesGoneError(stream, lo, hi)
    return gap_batch(offsets.Span(stream, lo, hi, offsets.GAP_DELETED))


def _one_of(options: Mapping[str, str], name: str, default: str, *allowed: str) -> str:
    value = options.get(name, default)
    if value not in allowed:
        raise OptionError(name, value, " or ".join(allowed))
    return value


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    if not value.isdigit() or int(value) < 1:
        raise OptionError(name, value, "a whole number from 1")
    return int(value)
