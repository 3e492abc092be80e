"""Tables that messages are ingested into."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from tests.support.spark_frames import frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]


class World:
    """Tables under a directory, and batches that come into them."""

    def __init__(self, root: Path | str) -> None:
        self.root = str(root)
        self.ingest = Ingest(self.root, SYSTEM_CLOCK)
        self.batch = -1

    def take(self, *parts: pa.RecordBatch) -> BatchOutcome:
        self.batch += 1
        number = self.ingest.tables.next_ingest
        reports = [task(self.root, number, part) for part in parts]
        return self.ingest.commit("app", self.batch, reports)

    def points(self) -> Counter[tuple[int, int]]:
        """Return how often each (seq, index) is in the points table."""
        return held(self.root)

    def rows(self, name: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = (
            DeltaTable(f"{self.root}/{name}").to_pyarrow_table().to_pylist()
        )
        return rows


def held(root: str) -> Counter[tuple[int, int]]:
    rows = DeltaTable(f"{root}/points").to_pyarrow_table(columns=["seq", "index"]).to_pylist()
    return Counter((row["seq"], row["index"]) for row in rows)


def frames(*seqs: int, first_seq: int = 1, epoch: int = 1) -> pa.RecordBatch:
    bodies = [frame(seq, epoch=epoch) for seq in seqs]
    return message_batch("UP_00", stored(bodies, first_seq=first_seq))
