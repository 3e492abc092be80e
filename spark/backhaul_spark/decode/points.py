"""Turn messages into rows of points, columns at a time. Executor side; no Spark in here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_codec import CodecError, peek
from backhaul_codec.bulk.column_batch import TEXT_BYTES_MAX
from backhaul_codec.bulk.columns import Rejected, decode_columns
from backhaul_spark.arrays import Ints
from backhaul_spark.columns import STAMP, columns
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.messages import MESSAGES, leaf_of

# What is decoded together. A point takes three bytes of a body before compression, at the least: so
# this is a million points at most, 400,000 of dense telemetry, whatever a compressed message promises.
CHUNK_BYTES = 3 << 20
CHUNK_MESSAGES = 8192
# What the names and texts of its points come to, each with copies of its own. One message's alone come
# to no more than 64 MiB, and are decoded alone if need be.
CHUNK_TEXT_BYTES = 64 << 20

POINTS = columns(
    """
    device string, lane string, epoch bigint, seq bigint, index int, letter string, node string,
    type string, key string, time timestamp, time_ns bigint, dtype smallint, value_f64 double,
    value_i64 bigint, value_text string, value_bytes binary, tombstone smallint, origin string,
    clock smallint, stream string, stream_seq bigint, stored_at timestamp
    """
)

# The source's `points` format: a message that could not be read, and a gap, keep a row as well.
POINT_ROWS = pa.schema(
    [*POINTS, *(MESSAGES.field(name) for name in ("subject", "code", "reason", "missing"))]
)
_STORED_NS_DAY = 86_400_000_000_000


@dataclass(frozen=True)
class Decoded:
    """A chunk of messages, decoded.

    `messages` are the rows that went in (schema MESSAGES); `columns` the points that came out, as
    the codec has them, and `message` the row of `messages` of each; `counts` how many points each
    message gave; `rejected` maps the row of a bad message to (code, reason). A message of
    `rejected` has no points.
    """

    messages: pa.RecordBatch
    columns: pa.RecordBatch
    message: Ints
    counts: Ints
    rejected: dict[int, tuple[str, str]]

    @cached_property
    def points(self) -> pa.RecordBatch:
        """The points with all columns of POINTS, made when they are asked for."""
        return _point_columns(self.messages, self.columns, self.message, self.counts)


def decode_batch(
    batch: pa.RecordBatch, dictionaries: DictionaryReader | None = None
) -> Iterator[Decoded]:
    """Decode a batch of schema MESSAGES in chunks of bounded size.

    Rows that carry a code already (garbage, gaps) come back as rejected. Raises: HubServerError, where a
    dictionary is to be looked up and the hub's server does not answer.
    """
    for part in chunks(batch):
        yield from _decode_chunk(part, part.column("body").to_pylist(), dictionaries)


def chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch of schema MESSAGES into chunks to decode together, by the bodies' uncompressed size."""
    bodies: list[bytes] = batch.column("body").to_pylist()  # None where marked
    marked = batch.column("code").is_valid().to_pylist()
    start, weight = 0, 0
    for row, body in enumerate(bodies):
        cost = 0 if marked[row] else peek(body).raw_len
        if row > start and (weight + cost > CHUNK_BYTES or row - start == CHUNK_MESSAGES):
            yield batch.slice(start, row - start)
            start, weight = row, 0
        weight += cost
    if start < len(bodies):
        yield batch.slice(start)


def _decode_chunk(
    batch: pa.RecordBatch, bodies: list[bytes], dictionaries: DictionaryReader | None
) -> Iterator[Decoded]:
    codes, reasons = batch.column("code").to_pylist(), batch.column("reason").to_pylist()
    rejected = {row: (code, reasons[row]) for row, code in enumerate(codes) if code is not None}
    if dictionaries is not None:
        bodies = _plain_bodies(batch, bodies, rejected, dictionaries)
    rows = [row for row in range(len(bodies)) if row not in rejected]
    subjects: list[str] = batch.column("subject").to_pylist()
    bad: list[Rejected] = []
    try:
        columns = decode_columns(
            [bodies[row] for row in rows],
            subjects=[subjects[row] for row in rows],
            rejected=bad,
            texts_max=CHUNK_TEXT_BYTES if len(bodies) > 1 else TEXT_BYTES_MAX,
        )
    except CodecError as error:  # together too large: not one message's fault
        if len(bodies) > 1:
            half = len(bodies) // 2
            yield from _decode_chunk(batch.slice(0, half), bodies[:half], dictionaries)
            yield from _decode_chunk(batch.slice(half), bodies[half:], dictionaries)
            return
        columns = decode_columns([])
        rejected[0] = (error.code, error.reason)
    rejected |= {rows[item.index]: (item.code, item.reason) for item in bad}
    message = np.asarray(rows, np.int64)[columns.column("message").to_numpy()]
    counts = np.bincount(message, minlength=len(bodies)).astype(np.int64)
    yield Decoded(batch, columns, message, counts, rejected)


def _plain_bodies(
    batch: pa.RecordBatch,
    bodies: list[bytes],
    rejected: dict[int, tuple[str, str]],
    dictionaries: DictionaryReader,
) -> list[bytes]:
    """Return the bodies without their dictionaries; enter those that lack theirs in `rejected`."""
    rows = [row for row in range(len(bodies)) if row not in rejected]
    devices = batch.column("device").to_pylist()
    found = dictionaries.plain([devices[row] for row in rows], [bodies[row] for row in rows])
    changed = list(bodies)
    for row, body in zip(rows, found, strict=True):
        if isinstance(body, CodecError):
            rejected[row] = (body.code, body.reason)
        else:
            changed[row] = body
    return changed


def _point_columns(
    batch: pa.RecordBatch,
    columns: pa.RecordBatch,
    message: Ints,
    counts: Ints,
) -> pa.RecordBatch:
    time_ns = columns.column("time").to_numpy()
    first_rows = np.cumsum(counts) - counts
    index = np.arange(len(message), dtype=np.int64) - first_rows[message]
    letters = _letters(batch.column("subject").to_pylist())
    take = pa.array(message)
    # Message-level text as dictionaries: a frame of 200 points must not copy its device 200 times.
    spread = {
        name: _spread(batch.column(name), take)
        for name in ("device", "lane", "stream", "stored_at")
    }
    values: dict[str, Any] = {
        **spread,
        "letter": _spread(letters, take),
        "epoch": batch.column("epoch").take(take),
        "seq": batch.column("seq").take(take),
        "stream_seq": batch.column("stream_seq").take(take),
        "index": pa.array(index.astype(np.int32)),
        "node": columns.column("node"),
        "type": columns.column("type"),
        "key": columns.column("key"),
        # Floor, also before 1970: a microsecond never lies after the point it stands for.
        "time": pa.array(np.floor_divide(time_ns, 1000)).cast(STAMP),
        "time_ns": columns.column("time"),
        "dtype": columns.column("dtype").cast(pa.int16()),
        "value_f64": columns.column("f64"),
        "value_i64": columns.column("i64"),
        "value_text": columns.column("text"),
        "value_bytes": columns.column("data"),
        "tombstone": columns.column("tombstone").cast(pa.int16()),
        "origin": columns.column("origin"),
        "clock": columns.column("clock").cast(pa.int16()),
    }
    return pa.RecordBatch.from_arrays([values[name] for name in POINTS.names], names=POINTS.names)


def _spread(column: pa.Array, take: pa.Array) -> pa.Array:
    encoded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(take), encoded.dictionary)


def _letters(subjects: list[str | None]) -> pa.Array:
    letters: list[str | None] = []
    for subject in subjects:
        try:
            letters.append(leaf_of(subject or "").letter)
        except ValueError:  # a rejected message, which has no points to name
            letters.append(None)
    return pa.array(letters, pa.string())


def point_rows(
    batch: pa.RecordBatch, dictionaries: DictionaryReader | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the source's `points` format: the points, then a row for every message without any."""
    for decoded in decode_batch(batch, dictionaries):
        points = decoded.points
        if points.num_rows:
            arrays = [_plain(points.column(field.name), field.type) for field in POINTS]
            extra = [pa.nulls(points.num_rows, POINT_ROWS.field(i).type) for i in range(-4, 0)]
            yield pa.RecordBatch.from_arrays(arrays + extra, schema=POINT_ROWS)
        if decoded.rejected:
            yield _rejected_rows(decoded)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column.cast(kind) if column.type != kind else column


def _rejected_rows(decoded: Decoded) -> pa.RecordBatch:
    rows = sorted(decoded.rejected)
    kept = decoded.messages.take(pa.array(rows))
    columns = []
    for field in POINT_ROWS:
        if field.name == "code":
            columns.append(pa.array([decoded.rejected[row][0] for row in rows], pa.string()))
        elif field.name == "reason":
            columns.append(pa.array([decoded.rejected[row][1] for row in rows], pa.string()))
        elif field.name in MESSAGES.names:
            columns.append(kept.column(field.name))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=POINT_ROWS)


# Points whose time cannot be true lie together in one partition, so that a vehicle with a broken
# clock neither loses them nor makes a partition for every day that it dreams of.
TIMELESS = np.datetime64("1970-01-01", "D")
_EARLIEST_NS = 946_684_800_000_000_000  # 2000-01-01
_AHEAD_NS = 86_400_000_000_000  # later than a day after the hub stored it
CLOCK_UNSET = 2


def partition_days(points: pa.RecordBatch) -> NDArray[np.int32]:
    """Return each point's partition, days since 1970: the UTC day of its time, or TIMELESS (0).

    TIMELESS holds what came from an unset clock, from before 2000, or from more than a day after
    the hub stored the message. The rule looks at nothing but the message, so a replay agrees.
    """
    time_ns = points.column("time_ns").to_numpy()
    stored = points.column("stored_at")
    stored_us = stored.indices.to_numpy()
    dictionary = stored.dictionary.cast(pa.int64()).to_numpy()
    limit_ns = dictionary[stored_us] * 1000 + _AHEAD_NS
    believable = (time_ns >= _EARLIEST_NS) & (time_ns <= limit_ns)
    believable &= points.column("clock").to_numpy() != CLOCK_UNSET
    days = np.floor_divide(time_ns, _STORED_NS_DAY)
    return np.where(believable, days, 0).astype(np.int32)


__all__ = ["POINTS", "POINT_ROWS", "TIMELESS", "Decoded", "decode_batch", "partition_days"]
