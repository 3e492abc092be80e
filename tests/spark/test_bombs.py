"""Valid messages that come to far more than they weigh: read in bounded memory, every one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from backhaul_codec import Opaque, Point, Value, encode_frame
from backhaul_spark.decode import points as points_module
from backhaul_spark.decode.points import decode_batch
from backhaul_spark.decode.sample_batch import SAMPLE
from backhaul_spark.decode.samples import SAMPLE_ROWS, wanted_from
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.offsets import Span
from backhaul_spark.source import jetstream_source as source
from backhaul_spark.tables import part_file, part_writer
from backhaul_spark.tables.part_file import read_batches, row_groups, without_messages
from tests.support.bombs import points_bomb, text_bomb
from tests.support.spark_frames import T0_NS, frame, stored, task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

# docs/tables.md names it; Python with its libraries is some 185 MB of it.
PEAK_MB_MAX = 512


@pytest.mark.parametrize(
    ("kind", "messages", "rows"),
    [
        ("points", 12, 13 << 18),
        ("texts", 24, 25 * 400),
        ("blobs", 24, 25 * 400),
        ("series", 10, 11 * 60_000),
        ("names", 4, 5 * 200_000),
        ("honest", 1000, 1001 * 250),
    ],
)
def test_whatever_messages_come_to_memory_stays_under_a_bound(
    tmp_path: Path, kind: str, messages: int, rows: int
) -> None:
    words = [sys.executable, "-m", "tests.support.expanding", str(tmp_path), kind, str(messages)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["held"]) == (rows, rows)
    assert found["counted"] == (0 if kind == "blobs" else rows), "bytes are no readings"
    peaks = {name: mb for name, mb in found.items() if name.endswith("_mb")}
    assert max(peaks.values()) < PEAK_MB_MAX, peaks


def test_messages_are_decoded_apart_whose_texts_come_to_too_much_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points_module, "CHUNK_TEXT_BYTES", 10_000)
    bodies = [frame(1), text_bomb(2, copies=9, size=1000), text_bomb(3, copies=9, size=1000)]
    bodies += [text_bomb(4, copies=99, size=1000), frame(5)]
    found = list(decode_batch(message_batch("UP_00", stored(bodies))))
    assert len(found) > 2
    assert not any(each.rejected for each in found), "one alone is never too much"
    seqs = [seq for each in found for seq in each.points.column("seq").to_pylist()]
    assert seqs == [1] * 2 + [2] * 9 + [3] * 9 + [4] * 99 + [5] * 2


def test_a_million_points_are_decoded_together_at_most() -> None:
    found = list(
        decode_batch(message_batch("UP_00", stored([points_bomb(n) for n in (1, 2, 3, 4, 5)])))
    )
    assert max(each.points.num_rows for each in found) <= 1 << 20
    assert sum(each.points.num_rows for each in found) == 5 << 18


def test_row_groups_are_cut_by_what_their_texts_come_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "ROW_GROUP_BYTES", 100_000)
    monkeypatch.setattr(part_file, "ROW_GROUP_BYTES", 100_000)
    bodies = [text_bomb(seq, copies=20, size=1000) for seq in range(1, 31)]
    batches = [
        message_batch("UP_00", stored([body], first_seq=n)) for n, body in enumerate(bodies, 1)
    ]
    [file] = task(str(tmp_path), 1, *batches).files
    groups = pq.ParquetFile(tmp_path / "points" / file["path"]).num_row_groups
    assert 5 <= groups <= 15
    again = without_messages(f"{tmp_path}/points", file, 2, {"UP_00": pa.array([7])})
    assert again is not None
    assert again["rows"] == 29 * 20
    parquet = pq.ParquetFile(tmp_path / "points" / again["path"])
    assert 5 <= parquet.num_row_groups <= 15
    assert set(parquet.read().column("stream_seq").to_pylist()) == {*range(1, 31)} - {7}


def test_what_is_left_of_a_file_is_what_it_was(tmp_path: Path) -> None:
    values: list[Value] = ["a", "", "\N{SNOWMAN}", b"", b"\0", Opaque(6, b"[1]"), 1.5, 7, 2**64 - 1]
    bodies = [
        encode_frame(
            [
                Point("battery", "soc", T0_NS + at, value, key="k", tombstone=at % 2)
                for at, value in enumerate(values)
            ],
            epoch=1,
            seq=seq,
        )
        for seq in (1, 2, 3)
    ]
    [file] = task(str(tmp_path), 1, message_batch("UP_00", stored(bodies))).files
    path = tmp_path / "points" / file["path"]
    before = pq.read_table(path, partitioning=None)
    with path.open("rb") as opened:
        assert pa.Table.from_batches(read_batches(opened)).cast(before.schema) == before
    again = without_messages(f"{tmp_path}/points", file, 2, {"UP_00": pa.array([2])})
    assert again is not None
    after = pq.read_table(tmp_path / "points" / again["path"], partitioning=None)
    assert after.schema == before.schema
    assert after == before.filter(pa.compute.not_equal(before.column("stream_seq"), 2))


def test_a_batch_of_which_each_row_comes_to_much_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "ROW_GROUP_BYTES", 1000)
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0, 0], pa.int32()), pa.array(["x" * 600, "y" * 2000])
    )
    batch = pa.RecordBatch.from_arrays([texts, pa.array(np.arange(5))], ["text", "n"])
    found = [table.column("n").to_pylist() for table in row_groups([batch])]
    assert found == [[0], [1], [2, 3], [4]]


def test_what_the_rules_see_of_many_points_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimpleNamespace(
        endpoint=None, format="samples", wanted=wanted_from("battery.soc", "", 2)
    )
    batch = message_batch("UP_00", stored([points_bomb(n) for n in range(1, 6)]))
    monkeypatch.setattr(source, "_message_batches", lambda *_: [batch])
    parts = list(source.read_span(settings, Span("UP_00", 1, 5)))  # type: ignore[arg-type]
    assert all(part.schema == SAMPLE_ROWS for part in parts)
    cells = [cell for part in parts for cell in part.column("samples").to_pylist()]
    assert max(map(len, cells)) <= SAMPLE.itemsize << 20
    assert sum(map(len, cells)) == SAMPLE.itemsize * 5 << 18
