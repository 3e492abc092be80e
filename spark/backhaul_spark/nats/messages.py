"""Turn stored messages into Arrow batches of the source's `messages` format.

A message that cannot be one of a vehicle's is not dropped and does not stop the query: it keeps
its row, with `code` and `reason` set. A gap is a row too, with the number of missing messages.
Bodies are only peeked at here; what is wrong inside one shows when it is decoded (decode/points.py).
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec import CodecError, peek
from backhaul_codec.subjects import (
    DEVICE_ID,
    IMPORT,
    IMPORT_STREAM,
    SubjectError,
    Uplink,
    parse_import,
    parse_leaf,
    parse_uplink,
)
from backhaul_spark.columns import STAMP, columns
from backhaul_spark.nats.offsets import Span
from backhaul_spark.nats.stored import Stored

# `code`: null for a good message; `missing`: of a gap, how many messages from `stream_seq` on, 0 where
# that is not known.
MESSAGES = columns(
    """
    stream string not null, stream_seq bigint not null, subject string, device string,
    lane string, epoch bigint, seq bigint, stored_at timestamp, body binary, code string,
    reason string, missing bigint
    """
)

REJECT_SUBJECT = "subject"
REJECT_IDENTITY = "identity"
SEQ_MAX = 2**63 - 1  # Delta's and Parquet's widest integer is signed

# By leaf subject, of which a whole fleet has no more than its largest vehicle; by subject it would be
# as many as series times vehicles.
_parsed = lru_cache(maxsize=1 << 16)(parse_leaf)
_parsed_import = lru_cache(maxsize=1 << 12)(parse_import)
_IMPORTED = f"{IMPORT}."


def leaf_of(subject: str) -> Uplink:
    """Parse an uplink subject, but for its device: the answer is shared by all. Raises: SubjectError."""
    return _split(subject)[1]


def _split(subject: str) -> tuple[str, Uplink]:
    device, _, leaf_subject = subject.partition(".")[2].partition(".")
    if DEVICE_ID.match(device):
        if subject.startswith("up."):
            return device, _parsed(leaf_subject)
        if subject.startswith(_IMPORTED):
            return device, _parsed_import(leaf_subject)
    return device, parse_uplink(subject)  # says what is wrong


def message_batch(stream: str, stored: Stored) -> pa.RecordBatch:
    """Return the messages as one batch of schema MESSAGES, rows in stream order."""
    count = len(stored.seqs)
    devices: list[str | None] = [None] * count
    lanes: list[str | None] = [None] * count
    epochs: list[int | None] = [None] * count
    seqs: list[int | None] = [None] * count
    codes: list[str | None] = [None] * count
    reasons: list[str | None] = [None] * count
    for row, (subject, body) in enumerate(zip(stored.subjects, stored.bodies, strict=True)):
        try:
            devices[row], leaf = _split(subject)
            _require_place(subject, leaf, stream)
            lanes[row] = leaf.lane
            epochs[row], seqs[row] = _identity(body)
        except SubjectError as error:
            codes[row], reasons[row] = REJECT_SUBJECT, str(error)
        except CodecError as error:
            codes[row], reasons[row] = error.code, error.reason
    columns = [
        pa.repeat(pa.scalar(stream), count),
        pa.array(stored.seqs, pa.int64()),
        pa.array(stored.subjects, pa.string()),
        pa.array(devices, pa.string()),
        pa.array(lanes, pa.string()),
        pa.array(epochs, pa.int64()),
        pa.array(seqs, pa.int64()),
        # Arrow's own parser reads RFC 3339 with any number of decimals, without Python a row.
        pa.array(stored.times).cast(pa.timestamp("ns", tz="UTC")).cast(STAMP, safe=False),
        pa.array(stored.bodies, pa.binary()),
        pa.array(codes, pa.string()),
        pa.array(reasons, pa.string()),
        pa.nulls(count, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def _require_place(subject: str, leaf: Uplink, stream: str) -> None:
    """Refuse a message in the wrong stream: no vehicle can import. Raises: SubjectError."""
    if (leaf.lane == IMPORT) != (stream == IMPORT_STREAM):
        raise SubjectError(f"{subject[:80]!r} does not belong in {stream}")


def _identity(body: bytes) -> tuple[int, int]:
    header = peek(body)
    if not 1 <= header.seq <= SEQ_MAX:
        # Without a place in its lane a message has no identity: it could not be told from its own
        # repeat, so it cannot be kept exactly once.
        raise CodecError(f"sequence {header.seq} is no place in a lane", REJECT_IDENTITY)
    return header.epoch, header.seq


def gap_batch(span: Span) -> pa.RecordBatch:
    """Return the one row that says a span is missing."""
    row = {
        "stream": span.stream,
        "stream_seq": span.lo,
        "code": span.gap,
        "reason": f"{span.count or 'an unknown number of'} messages are no longer in the stream",
        "missing": span.count,
    }
    return pa.RecordBatch.from_pylist([row], schema=MESSAGES)
