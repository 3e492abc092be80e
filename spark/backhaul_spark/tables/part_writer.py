"""Write a task's points as Parquet files and report their contents. Executor side.

The driver only commits: no point crosses from an executor to it, and none is shuffled. Files are
written into the table's own directories under names that no log refers to yet; a task that dies
leaves a stray file behind, never a wrong table (`vacuum` clears it).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.columns import STAMP, columns, packed, unpacked
from backhaul_spark.decode.chained import links_and_hashes
from backhaul_spark.decode.part_words import PartWords
from backhaul_spark.decode.points import Decoded, decode_batch, partition_days
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.messages import MESSAGES
from backhaul_spark.tables.part_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS, PartFile, unified
from backhaul_spark.tables.said_again import Aside, Note

BUFFERED_ROWS_MAX = 1 << 20
BUFFERED_BYTES_MAX = 2 * ROW_GROUP_BYTES
OPEN_FILES_MAX = 32

# What a task hands to the driver: one row.
REPORT_COLUMNS = "facts string, messages binary"
REPORT = columns(REPORT_COLUMNS)

# One row for every message that gave points or could have; the driver decides on these.
MESSAGE_FACTS = pa.schema(
    [
        *(MESSAGES.field(name) for name in ("stream", "stream_seq", "device", "lane")),
        *(MESSAGES.field(name) for name in ("epoch", "seq")),
        # `link`: 0 where it is not known, as of all messages of version 1.
        *columns("points bigint, link bigint, hash bigint"),
    ]
)


_FACTS = ("files", "rejects", "gaps", "receipts", "marks", "ended", "again")


@dataclass(slots=True)
class TaskReport:
    """The messages and points of one task.

    `files`: path (relative to the table), partition, size (bytes), rows, stats (Delta's). `rejects` and
    `gaps` as in their tables; `receipts`, `marks` and `ended` with the stream and stream_seq they
    came in, so that one in a repeated message is dropped with it. `again`: see tables/said_again.py.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    messages: pa.Table = field(default_factory=MESSAGE_FACTS.empty_table)

    def to_batch(self) -> pa.RecordBatch:
        """Return the report as the one row of schema REPORT."""
        facts = {name: getattr(self, name) for name in _FACTS}
        row = {"facts": json.dumps(facts), "messages": packed(self.messages)}
        return pa.RecordBatch.from_pylist([row], schema=REPORT)

    @classmethod
    def from_row(cls, facts: str, messages: bytes) -> TaskReport:
        """Read a report back. Driver."""
        return cls(**json.loads(facts), messages=unpacked(messages))


class PartWriter:
    """Write the points of one task into files of one date each."""

    def __init__(self, uri: str, ingest: int, ingested_at_us: int) -> None:
        self._uri = uri
        self._ingest = ingest
        self._ingested_at_us = ingested_at_us
        self._buffers: dict[int, list[pa.RecordBatch]] = {}
        self._rows: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._open: dict[int, PartFile] = {}
        self.files: list[dict[str, Any]] = []

    def write(self, points: pa.RecordBatch, days: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Take points (schema POINTS, text columns maybe dictionaries) and their partitions.

        `days`: (points,) int32, the partition of each point, days since 1970.
        """
        distinct = np.unique(days)
        for day in distinct.tolist():
            part = points if len(distinct) == 1 else points.filter(pa.array(days == day))
            self._buffers.setdefault(day, []).append(part)
            self._rows[day] = self._rows.get(day, 0) + part.num_rows
            self._bytes[day] = self._bytes.get(day, 0) + part.nbytes
            if self._rows[day] >= ROW_GROUP_ROWS or self._bytes[day] >= ROW_GROUP_BYTES:
                self._flush(day)
        while sum(self._rows.values()) > BUFFERED_ROWS_MAX:
            self._flush(max(self._rows, key=lambda day: self._rows[day]))
        while sum(self._bytes.values()) > BUFFERED_BYTES_MAX:
            self._flush(max(self._bytes, key=lambda day: self._bytes[day]))

    def close(self) -> list[dict[str, Any]]:
        """Flush everything and return the files, see TaskReport."""
        for day in list(self._buffers):
            self._flush(day)
        for day in list(self._open):
            self._finish(day)
        return self.files

    def _flush(self, day: int) -> None:
        rows = self._rows.pop(day)
        del self._bytes[day]
        table = pa.Table.from_batches(unified(self._buffers.pop(day)))
        table = table.append_column(
            "ingested_at", pa.repeat(pa.scalar(self._ingested_at_us).cast(STAMP), rows)
        ).append_column("ingest", pa.repeat(pa.scalar(self._ingest), rows))
        if day not in self._open:
            if len(self._open) == OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            self._open[day] = PartFile(
                self._uri, {"date": str(np.datetime64(day, "D"))}, self._ingest, table.schema
            )
        self._open[day].write(table)

    def _finish(self, day: int) -> None:
        self.files.append(self._open.pop(day).close())


def write_parts(
    batches: Iterable[pa.RecordBatch],
    uri: str,
    ingest: int,
    ingested_at_us: int,
    standing: Collection[Note] = (),
    dictionaries: DictionaryReader | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode the messages of one Spark partition (schema MESSAGES), write their points, yield the one-row report.

    `standing`: readings that stand in points already, as `Ingest.standing` has them.
    """
    writer = PartWriter(uri, ingest, ingested_at_us)
    report = TaskReport()
    words = PartWords()
    aside = Aside(standing)
    facts: list[pa.RecordBatch] = []
    for batch in batches:
        for decoded in decode_batch(batch, dictionaries):
            points = aside.rest(decoded)
            if points.num_rows:
                writer.write(points, partition_days(points))
            facts.append(_message_facts(decoded))
            _note_bad(decoded, report)
            words.take(decoded)
    report.files = writer.close()
    report.again = aside.report()
    report.receipts, report.marks, report.ended = words.receipts, words.marks, words.ended
    report.messages = pa.Table.from_batches(facts, schema=MESSAGE_FACTS)
    yield report.to_batch()


def _message_facts(decoded: Decoded) -> pa.RecordBatch:
    messages, counts = decoded.messages, decoded.counts
    if decoded.rejected:
        good = np.ones(messages.num_rows, dtype=bool)
        good[list(decoded.rejected)] = False
        messages, counts = messages.filter(pa.array(good)), counts[good]
    columns = [messages.column(name) for name in MESSAGE_FACTS.names[:-3]]
    links, hashes = links_and_hashes(
        messages.column("subject").to_pylist(), messages.column("body").to_pylist()
    )
    columns += [pa.array(each) for each in (counts, links, hashes)]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_FACTS)


def _note_bad(decoded: Decoded, report: TaskReport) -> None:
    for row, (code, reason) in sorted(decoded.rejected.items()):
        message = decoded.messages.slice(row, 1).drop_columns(["body"]).to_pylist()[0]
        if message["missing"] is not None:
            lo = message["stream_seq"]
            hi = lo + message["missing"] - 1
            report.gaps.append(
                {"stream": message["stream"], "lo": lo, "hi": hi, "code": code, "reason": reason}
            )
            continue
        stored = decoded.messages.column("stored_at").slice(row, 1).cast(pa.int64())[0].as_py()
        report.rejects.append(
            {
                "stream": message["stream"],
                "stream_seq": message["stream_seq"],
                "subject": message["subject"],
                "code": code,
                "reason": reason,
                "bytes": len(decoded.messages.column("body")[row].as_py()),
                "stored_at": stored,
            }
        )
