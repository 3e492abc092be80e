"""Points lie by series and time within a file that compaction made, and nothing else of them changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.tables import by_series, part_file
from backhaul_spark.tables.by_series import in_order
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.part_file import by_dictionary
from backhaul_spark.tables.schemas import POINTS_TABLE
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

pytestmark = pytest.mark.slow

SCHEMA = by_dictionary(
    pa.schema(
        [
            *((name, pa.string()) for name in ("device", "node", "type", "key", "value_text")),
            ("time_ns", pa.int64()),
            ("seq", pa.int64()),
        ]
    )
)
ROW = st.tuples(
    st.sampled_from(["V-1", "V-10", "V-2", "é"]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from(["t", "u"]),
    st.sampled_from(["", "k"]),
    st.one_of(st.none(), st.text(max_size=40)),
    st.integers(-3, 3),
)


def batches_of(rows: list[tuple[Any, ...]], size: int) -> list[pa.RecordBatch]:
    found = []
    for start in range(0, len(rows), size):
        columns = list(zip(*rows[start : start + size], strict=True))
        arrays = [
            pa.array(column, field.type.value_type).dictionary_encode()
            if pa.types.is_dictionary(field.type)
            else pa.array(column, field.type)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return found


@given(
    rows=st.lists(ROW, min_size=1, max_size=60),
    size=st.integers(1, 9),
    group=st.integers(1, 20),
    block=st.integers(1, 5),
    texts=st.sampled_from([0, 200, 1 << 20]),
)
@settings(deadline=None)
def test_rows_come_out_in_order_and_all_of_them(
    rows: list[tuple[Any, ...]], size: int, group: int, block: int, texts: int
) -> None:
    numbered = [(*row, at) for at, row in enumerate(rows)]
    with (
        mock.patch.object(part_file, "ROW_GROUP_ROWS", group),
        mock.patch.object(by_series, "BLOCK_ROWS", block),
        mock.patch.object(by_series, "TEXT_BYTES_MAX", texts),
    ):
        found = [
            tuple(row.values())
            for table in in_order(iter(batches_of(numbered, size)))
            for row in table.to_pylist()
        ]
    expected = sorted(numbered, key=lambda row: (row[1] or "", *row[2:4], row[0], row[5], row[6]))
    if texts == 1 << 20:
        assert found == expected
    assert sorted(found, key=lambda row: row[6]) == numbered


def test_a_row_group_of_a_compacted_file_has_few_series_and_history_reads_no_other(
    tmp_path: Path,
) -> None:
    """Six series that come together; of each a row group in the end, where each row group had all."""
    root, ingest = str(tmp_path), Ingest(str(tmp_path), SYSTEM_CLOCK)
    names = [f"s{number}" for number in range(6)]
    dice = random.Random(1)
    for batch in range(4):
        at_ns = T0_NS + batch * 100 * 1_000_000_000
        bodies = [
            frame(
                batch * 6 + n + 1, [dice.random() for _ in range(100)], type_=name, start_ns=at_ns
            )
            for n, name in enumerate(names)
        ]
        part = task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
        ingest.commit("app", batch, [part])
    before = dataset_of(open_table(root, POINTS_TABLE)).to_table()
    asked = parse_series("VID-001", "battery.s3")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    answer = History(root).ask(asked, start, start + timedelta(hours=1)).rows
    with (
        mock.patch.object(part_file, "ROW_GROUP_ROWS", 400),
        mock.patch.object(by_series, "BLOCK_ROWS", 100),
    ):
        assert compact(root, POINTS_TABLE, SYSTEM_CLOCK) == (4, 1)
    table = open_table(root, POINTS_TABLE)
    [path] = table.file_uris()
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("type")
    groups = [
        metadata.row_group(n).column(column).statistics for n in range(metadata.num_row_groups)
    ]
    assert [(group.min, group.max) for group in groups] == [(name, name) for name in names]
    keys = [(name, "ascending") for name in ("stream_seq", "index", "type", "seq")]
    assert dataset_of(table).to_table().sort_by(keys) == before.sort_by(keys)
    again = History(root).ask(asked, start, start + timedelta(hours=1)).rows
    assert again == answer
    assert again.num_rows == 400
    packages = Path(duckdb.__file__).parents[1]
    [extension] = packages.glob("duckdb_ext/extensions/*/*/delta.duckdb_extension")
    with duckdb.connect() as duck:
        duck.execute(f"LOAD '{extension}'")
        question = (
            f"SELECT value_f64 FROM delta_scan('{root}/points') WHERE type = 's3' ORDER BY time"
        )
        assert [row[0] for row in duck.execute(question).fetchall()] == answer["value"].to_pylist()


def test_with_both_ends_the_whole_series_is_not_read(tmp_path: Path) -> None:
    root, ingest = str(tmp_path), Ingest(str(tmp_path), SYSTEM_CLOCK)
    bodies = [frame(1, [1.0, 2.0, 3.0]), frame(2, [9.0], start_ns=0)]
    ingest.commit(
        "app", 0, [task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))]
    )
    asked, start = parse_series("VID-001", "battery.soc"), datetime(2026, 1, 1, tzinfo=UTC)
    with mock.patch.object(History, "_extent", side_effect=AssertionError):
        answer = History(root).ask(asked, start, start + timedelta(seconds=2))
    assert (answer.rows["value"].to_pylist(), answer.untimed) == ([1.0, 2.0], 1)


def test_from_1970_on_what_is_told_not_to_be_there_is_not_there(tmp_path: Path) -> None:
    root, ingest = str(tmp_path), Ingest(str(tmp_path), SYSTEM_CLOCK)
    bodies = [frame(1, [1.0, 2.0]), frame(2, [9.0], start_ns=0)]
    ingest.commit(
        "app", 0, [task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))]
    )
    words = ["history", "--table-root", root, "--device", "VID-001", "--series", "battery.soc"]
    said = CliRunner().invoke(cli, [*words, "--from", "1970-01-01"], catch_exceptions=False).output
    assert "raw, 2 rows from 1970-01-01" in said
    assert "1 points without a believable time are not among them" in said
    assert "9.0" not in said


def test_rows_of_very_many_devices_are_put_in_order_with_a_block_of_each_run_in_memory() -> None:
    """More names than one block has rows: each block holds its own, and not those of its run."""
    dice = random.Random(2)
    rows = [(f"V-{dice.randrange(90_000)}", "a", "t", "", None, at) for at in range(70_000)]
    numbered = [(*row, at) for at, row in enumerate(rows)]
    taken: list[pa.RecordBatch] = []
    whole = by_series._with_own_texts

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        taken.append(whole(batch))
        assert taken[-1].to_pylist() == batch.to_pylist()
        return taken[-1]

    with (
        mock.patch.object(by_series, "RUN_ROWS", 1 << 15),
        mock.patch.object(by_series, "_with_own_texts", noted),
    ):
        tables = list(in_order(iter(batches_of(numbered, 1 << 15))))
    found = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert found == sorted(numbered, key=lambda row: (row[0], row[5]))
    assert max(len(each.column("device").dictionary) for each in taken) <= by_series.BLOCK_ROWS


def test_many_runs_are_merged_in_as_many_steps_as_they_have_rows_for() -> None:
    """Each run has all devices, as where a fleet's hours come one after the other: no step takes a few rows of each."""
    rows = [
        (f"V-{at % 500}", "a", "t", "", None, at // 500, at) for at in range(16_000)
    ]  # 32 runs of 500
    steps: list[int] = []
    joined = by_series._joined

    def noted(parts: list[Any]) -> list[pa.RecordBatch]:
        batches = joined(parts)
        steps.append(sum(batch.num_rows for batch in batches))
        return batches

    with (
        mock.patch.object(by_series, "RUN_ROWS", 500),
        mock.patch.object(by_series, "BLOCK_ROWS", 50),
        mock.patch.object(by_series, "_joined", noted),
    ):
        found = [
            row for table in in_order(iter(batches_of(rows, 500))) for row in table.to_pylist()
        ]
    assert [row["seq"] for row in found] == [
        row[6] for row in sorted(rows, key=lambda row: (row[0], row[5]))
    ]
    assert len(steps) < 2 * 16_000 / 500
