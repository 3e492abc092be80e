"""A batch of ingest is known by what Spark has planned as it, not by its number alone. No JVM."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.checkpoint import FILE, checkpoint_uri
from backhaul_spark.errors import TablesBehindError
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from backhaul_spark.ingest.stream import IngestQuery
from backhaul_spark.tables.schemas import INGEST_TABLES
from tests.support.spark_crash import APP, ingest_batch
from tests.support.spark_frames import frame, message_batch, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa  # type: ignore[import-untyped]

pytestmark = pytest.mark.slow


class Handed(NamedTuple):
    """What Spark hands out as a batch: a frame of one task, which runs here."""

    messages: pa.RecordBatch
    rows: list[dict[str, Any]]

    def mapInArrow(self, work: Callable[[Any], Iterator[pa.RecordBatch]], schema: str) -> Handed:
        return self._replace(
            rows=[row for part in work([self.messages]) for row in part.to_pylist()]
        )

    def collect(self) -> list[dict[str, Any]]:
        return self.rows


class Spark:
    """Spark's part: a checkpoint beside the tables, and a driver that starts anew with each batch."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._log = Path(checkpoint_uri(self._root, "ingest").removeprefix(FILE))
        (self._log / "offsets").mkdir(parents=True)
        (self._log / "metadata").write_text('{"id": "one"}')

    def hand_out(self, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Note messages `lo` to `hi` as a batch, and have it done; return (new, repeated) of it."""
        (self._log / "offsets" / str(batch)).write_text(f"v1 {lo} {hi}")
        said: list[BatchOutcome] = []
        session: Any = None
        ingest = Ingest(self._root, SYSTEM_CLOCK)
        query = IngestQuery(session, ingest, {"servers": "nobody"}, SYSTEM_CLOCK, said.append)
        bodies = [frame(seq) for seq in range(lo, hi + 1)]
        handed: Any = Handed(message_batch("UP_00", stored(bodies, first_seq=lo)), [])
        query._batch(handed, batch)
        return [(outcome.messages, outcome.repeated) for outcome in said]


def test_the_same_batch_again_is_left_alone(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    assert spark.hand_out(0, 1, 3) == [(3, 0)]
    assert spark.hand_out(0, 1, 3) == []
    assert spark.hand_out(1, 4, 5) == [(2, 0)]
    assert spark.hand_out(1, 4, 5) == []


def test_after_a_checkpoint_went_back_nothing_is_skipped_and_nothing_doubled(
    tmp_path: Path,
) -> None:
    """A power cut, or a copy put back: under a batch's number Spark plans what came since as well."""
    spark = Spark(tmp_path)
    for batch in range(3):
        assert spark.hand_out(batch, 2 * batch + 1, 2 * batch + 2) == [(2, 0)]
    assert spark.hand_out(2, 5, 7) == [(1, 2)]  # one batch back
    assert spark.hand_out(1, 3, 9) == [(2, 5)]  # two more
    assert spark.hand_out(1, 3, 9) == []
    assert spark.hand_out(2, 10, 10) == [(1, 0)]


def test_tables_that_went_back_alone_are_told_of_and_not_gone_on_with(tmp_path: Path) -> None:
    """Their checkpoint stands behind what they have lost: nobody would read that again."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    spark = Spark(root)
    spark.hand_out(0, 1, 2)
    shutil.copytree(root, copy)
    spark.hand_out(1, 3, 4)
    for spec in INGEST_TABLES:
        shutil.rmtree(root / spec.name)
        shutil.copytree(copy / spec.name, root / spec.name)
    with pytest.raises(TablesBehindError, match=r"at batch 2, .* none after batch 0") as caught:
        spark.hand_out(2, 5, 6)
    assert "new checkpoint" in caught.value.hint
    assert spark.hand_out(1, 3, 4) == [(2, 0)]
    for spec in INGEST_TABLES:
        shutil.rmtree(root / spec.name)
    with pytest.raises(TablesBehindError, match=r"at batch 2, .* none of its batches"):
        spark.hand_out(2, 5, 6)


def test_a_batch_that_the_version_before_committed_is_known_by_its_number(tmp_path: Path) -> None:
    ingest_batch(str(tmp_path), 0)
    assert Ingest(str(tmp_path), SYSTEM_CLOCK).done(APP, 0, planned=5)
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    ingest.commit(APP, 1, [], planned=5)
    assert (ingest.done(APP, 1, planned=5), ingest.done(APP, 1, planned=6)) == (True, False)
