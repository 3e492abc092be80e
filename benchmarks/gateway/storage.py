"""The bytes of readings at the hub: in the table `points`, written as the tasks of ingest write it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.tables.part_writer import TaskReport, write_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.gateway.ours import StoredMessage


class Written(NamedTuple):
    """The files of a table."""

    size_bytes: int
    rows: int


def written(messages: Sequence[StoredMessage], stream: str, directory: Path) -> Written:
    """Write the readings of messages as Parquet files below a directory; return what they are."""
    now_ns = SYSTEM_CLOCK.now_ns()
    now = datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat()
    stored = Stored(
        seqs=[each.seq for each in messages],
        subjects=[each.subject for each in messages],
        times=[now] * len(messages),
        bodies=[each.body for each in messages],
    )
    batches = [message_batch(stream, stored)]
    (row,) = write_parts(batches, str(directory), 1, now_ns // 1000)
    facts, told = (row.column(name)[0].as_py() for name in ("facts", "messages"))
    files = TaskReport.from_row(facts, told).files
    return Written(sum(file["size"] for file in files), sum(file["rows"] for file in files))
