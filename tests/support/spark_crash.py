"""A process that ingests a batch and is killed at a given step; run as `python -m`.

Arguments: table root, step ("files", "coverage", "points" or "never"), batch number. The batch
holds the messages of `crash_batch(number)`. No Spark: the steps are the driver's.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from tests.support.spark_frames import frame, message_batch, stored, task

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

APP = "checkpoint-of-the-test"


def crash_batch(number: int) -> list[pa.RecordBatch]:
    """Two tasks' messages; each batch repeats some of the one before, and some of its own."""
    base = number * 6
    left = [frame(seq) for seq in (base, base + 1, base + 2, base + 2) if seq]
    right = [frame(seq) for seq in (base + 1, base + 3, base + 4, base + 5, base + 6)]
    first = number * 100 + 1
    return [
        message_batch("UP_00", stored(left, first_seq=first)),
        message_batch("UP_00", stored(right, first_seq=first + 50)),
    ]


def ingest_batch(root: str, number: int, die_after: str = "never") -> None:
    """Do what the streaming query does with one batch."""

    def after(step: str) -> None:
        if step == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    ingest = Ingest(root, SYSTEM_CLOCK, after)
    if ingest.done(APP, number):
        return
    number_of_ingest = ingest.tables.next_ingest
    reports = [task(root, number_of_ingest, batch) for batch in crash_batch(number)]
    ingest.commit(APP, number, reports)


if __name__ == "__main__":
    ingest_batch(sys.argv[1], int(sys.argv[3]), sys.argv[2])
