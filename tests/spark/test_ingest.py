"""Exactly once: repeats, replays, crashes at every step, and two writers at a time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from backhaul_codec import Opaque, Point, encode_point
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.completeness.lane_states import lane_states
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.ingest import batch as ingest_module
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.messages import gap_batch
from backhaul_spark.nats.offsets import GAP_RETENTION, Span
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables import delta as tables
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import IngestTables, open_table
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    INGEST_TABLES,
    POINTS_TABLE,
    REJECTS_TABLE,
    SCHEMA_VERSION,
    TableSpec,
)
from tests.spark.ingest_world import World, frames, held
from tests.support.spark_crash import ingest_batch
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def once(*seqs: int) -> Counter[tuple[int, int]]:
    """Two points of each message, each once."""
    return Counter({(seq, index): 1 for seq in seqs for index in (0, 1)})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_repeats_in_one_task_across_tasks_and_across_batches_are_left_out(world: World) -> None:
    first = world.take(frames(1, 2, 2, 4), frames(4, 5, 1, first_seq=5))
    assert (first.messages, first.points, first.repeated) == (4, 8, 3)
    assert world.points() == once(1, 2, 4, 5)
    second = world.take(frames(2, 3, 4, first_seq=20))
    assert (second.messages, second.repeated) == (1, 2)
    assert world.points() == once(1, 2, 3, 4, 5)


def test_repeats_are_known_after_a_restart(world: World) -> None:
    world.take(frames(1, 2, 3))
    again = World(world.ingest.tables.root)
    again.batch = 5
    outcome = again.take(frames(3, 2, 4, first_seq=9))
    assert (outcome.messages, outcome.repeated) == (1, 2)
    assert again.points() == once(1, 2, 3, 4)


def test_a_batch_of_nothing_but_repeats_adds_no_file(world: World) -> None:
    world.take(frames(1, 2))
    outcome = world.take(frames(1, 2, first_seq=3))
    assert (outcome.files, outcome.messages, outcome.repeated) == (0, 0, 2)
    assert world.points() == once(1, 2)


def test_another_epoch_is_another_message(world: World) -> None:
    world.take(frames(1), frames(1, first_seq=2, epoch=2))
    assert sum(world.points().values()) == 4


def test_a_garbage_message_with_a_good_header_does_not_take_the_place_of_the_real_one(
    world: World,
) -> None:
    spoiled = bytearray(frame(2))
    spoiled[-1] ^= 0xFF
    outcome = world.take(message_batch("UP_00", stored([frame(1), bytes(spoiled), b"x"])))
    assert (outcome.messages, outcome.rejected) == (1, 2)
    assert [(r["stream_seq"], r["bytes"]) for r in world.rows("rejects")] == [
        (2, len(spoiled)),
        (3, 1),
    ]
    resent = world.take(frames(2, first_seq=9))
    assert (resent.messages, resent.repeated) == (1, 0)
    assert world.points() == once(1, 2)


def test_what_could_not_be_read_is_noted_once_however_often_it_is_read(world: World) -> None:
    """A checkpoint or a stream that went back, or a new checkpoint: coverage knows nothing of garbage."""
    garbage = stored([b"x", b"y"], first_seq=5)
    world.take(message_batch("UP_00", garbage))
    # Under a number that was another message's, or another stream's, it is another one.
    others = [replace(garbage, times=["2026-01-03T00:00:00.5Z"] * 2), garbage]
    again = stored([b"x", b"y", b"z"], first_seq=5)
    world.take(message_batch("UP_00", again), message_batch("UP_00", others[0]))
    world.take(message_batch("UP_01", others[1]), message_batch("UP_00", again))
    noted = Counter((row["stream"], row["stream_seq"]) for row in world.rows("rejects"))
    assert noted == {
        ("UP_00", 5): 2,
        ("UP_00", 6): 2,
        ("UP_00", 7): 1,
        ("UP_01", 5): 1,
        ("UP_01", 6): 1,
    }


def test_a_message_that_nobody_can_read_is_explained_once_too(world: World) -> None:
    """Sealed by its vehicle as it is, it has a receipt besides, of which coverage knows as little."""
    for count in (1, 2):
        bodies = [frame(seq, node="motor") for seq in range(1, count + 1)]
        world.take(message_batch("UP_00", stored(bodies, first_seq=5)))
    explained = [(row["lo"], row["reason"]) for row in world.rows("receipts")]
    assert sorted(explained) == [(1, "unreadable: node"), (2, "unreadable: node")]


def test_what_was_noted_is_found_where_others_have_tidied_up(world: World) -> None:
    for _ in range(2):
        world.take(message_batch("UP_00", stored([b"x"], first_seq=5)))
        world.take(message_batch("UP_00", stored([b"x"], first_seq=6)))
        compact(world.root, REJECTS_TABLE, SYSTEM_CLOCK)
        table = DeltaTable(f"{world.root}/rejects")
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(world.rows("rejects")) == 2


def test_gaps_in_a_stream_are_recorded(world: World) -> None:
    outcome = world.take(gap_batch(Span("UP_00", 1, 7, GAP_RETENTION)), frames(1, first_seq=8))
    assert outcome.gaps == 1
    [row] = world.rows("source_gaps")
    assert (row["lo"], row["hi"], row["code"]) == (1, 7, GAP_RETENTION)


def test_receipts_explain_holes_once(world: World) -> None:
    text = b'{"lane": "bulk", "epoch": 1, "lo": 2, "hi": 3, "reason": "evicted: disk full"}'
    body = encode_point(Point("", "receipt", T0_NS, Opaque(6, text)), epoch=1, seq=1)
    receipt = message_batch("UP_00", stored([body], leaf="e.receipt", first_seq=50))
    again = message_batch("UP_00", stored([body], leaf="e.receipt", first_seq=51))
    world.take(frames(1, 4, 6), receipt, again)
    assert len(world.rows("receipts")) == 1
    live, bulk = sorted(lane_states(world.root), key=lambda lane: lane.lane, reverse=True)
    assert (live.lane, live.state) == ("live", "complete")
    assert (bulk.messages, bulk.points, bulk.highest) == (3, 6, 6)
    assert bulk.holes == [(2, 3), (5, 5)]
    assert bulk.explained == [(2, 3, "evicted: disk full")]
    assert (bulk.missing, bulk.state) == (1, "waiting")


def test_points_without_a_believable_time_are_kept_and_counted(world: World) -> None:
    odd = frame(1, [1.0, 2.0], start_ns=5)
    outcome = world.take(message_batch("UP_00", stored([odd, frame(2)])))
    assert outcome.timeless_points == 2
    assert world.points() == once(1, 2)


@pytest.mark.parametrize("step", ["files", "coverage", "points"])
def test_killed_at_any_step_every_point_is_there_once(tmp_path: Path, step: str) -> None:
    root = str(tmp_path)
    for number in (0, 1):
        command = [sys.executable, "-m", "tests.support.spark_crash", root, step, str(number)]
        died = subprocess.run(command, check=False, timeout=240)
        assert died.returncode == -9
        ingest_batch(root, number)  # Spark hands a batch out again until it is committed
        ingest_batch(root, number)
    assert held(root) == once(*range(1, 13))
    [lane] = lane_states(root)
    assert (lane.state, lane.messages, lane.points) == ("complete", 12, 24)


def test_a_batch_whose_commit_was_not_heard_of_is_not_done_twice(tmp_path: Path) -> None:
    ingest_batch(str(tmp_path), 0)
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    assert ingest.done("checkpoint-of-the-test", 0)
    assert not ingest.done("checkpoint-of-the-test", 1)
    assert not ingest.done("another-checkpoint", 0)


def test_a_new_checkpoint_reads_everything_again_and_doubles_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.take(frames(1, 2, 3))
    number = world.ingest.tables.next_ingest
    outcome = world.ingest.commit("new", 0, [task(world.root, number, frames(1, 2, 3, 4))])
    assert (outcome.messages, outcome.repeated) == (1, 3)
    assert world.points() == once(1, 2, 3, 4)


def test_a_writer_that_was_thought_dead_can_commit_nothing_any_more(tmp_path: Path) -> None:
    slow = World(tmp_path)
    slow.take(frames(1, 2))
    report = task(slow.root, slow.ingest.tables.next_ingest, frames(3, first_seq=3))
    successor = World(tmp_path)
    successor.batch = 0
    with pytest.raises(TablesBusyError, match="taken over"):
        slow.ingest.commit("app", 1, [report])
    assert successor.take(frames(3, first_seq=3)).messages == 1
    assert successor.points() == once(1, 2, 3)


def test_a_successor_takes_out_what_the_dead_one_prepared_too_late(tmp_path: Path) -> None:
    """The slow writer got its coverage in before the successor came, but not its points."""
    slow = World(tmp_path)
    report = task(slow.root, slow.ingest.tables.next_ingest, frames(1, 2))
    decision = slow.ingest.coverage.decide(report.messages)
    slow.ingest._prepare([report], decision.rows, {})
    successor = World(tmp_path)
    assert successor.rows("coverage") == []
    with pytest.raises(TablesBusyError):
        slow.ingest.tables.commit_points([], "app", 0)
    assert successor.take(frames(1, 2)).messages == 2


def prepare(world: World, *seqs: int) -> None:
    """Get the next ingest's coverage in, but not its points."""
    report = task(world.root, world.ingest.tables.next_ingest, frames(*seqs))
    decision = world.ingest.coverage.decide(report.messages)
    world.ingest._prepare([report], decision.rows, {})


def test_what_one_prepared_is_not_believed_where_its_successor_died_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(World(tmp_path), 1, 2)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(2):  # killed after it took its number, twice
        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "delete", die)
            with pytest.raises(KeyboardInterrupt):
                Ingest(str(tmp_path), SYSTEM_CLOCK)
        assert lane_states(str(tmp_path)) == []
    world = World(tmp_path)
    assert world.take(frames(1, 2)).messages == 2
    assert world.points() == once(1, 2)
    [lane] = lane_states(world.root)
    assert (lane.messages, lane.points) == (2, 4)


def test_what_one_prepares_while_its_successor_starts_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = World(tmp_path)
    mark = IngestTables._mark

    def marked(tables: IngestTables, spec: TableSpec, *values: Any, **more: Any) -> None:
        mark(tables, spec, *values, **more)
        if spec is POINTS_TABLE:
            prepare(slow, 1, 2)

    with monkeypatch.context() as patched:
        patched.setattr(IngestTables, "_mark", marked)
        with pytest.raises(TablesBusyError):
            Ingest(slow.root, SYSTEM_CLOCK)
    with pytest.raises(TablesBusyError):
        slow.ingest.tables.commit_points([], "app", 0)
    world = World(tmp_path)
    assert world.take(frames(1, 2)).messages == 2
    assert world.points() == once(1, 2)


def test_a_writer_that_has_looked_again_since_another_took_over_commits_nothing(
    tmp_path: Path,
) -> None:
    slow = World(tmp_path)
    slow.take(frames(1, 2))
    successor = World(tmp_path)
    slow.ingest.tables.points.update_incremental()  # as after a compaction, and after its own commit
    with pytest.raises(TablesBusyError, match="taken over"):
        slow.take(frames(1, 2, first_seq=3))
    assert successor.take(frames(3, first_seq=5)).messages == 1


def test_coverage_rows_are_merged_when_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "LOOSE_ROWS_MAX", 3)
    for seq in range(1, 8):
        world.take(frames(seq, first_seq=seq))
    rows = world.rows("coverage")
    assert len(rows) < 6
    assert sum(int(str(row["points"])) for row in rows) == 14
    again = World(world.ingest.tables.root)
    assert again.ingest.coverage.lanes == world.ingest.coverage.lanes


def test_a_reader_misses_no_coverage_that_is_merged_while_it_reads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is merged carries the number of a later ingest than the reader may have found."""
    monkeypatch.setattr(ingest_module, "LOOSE_ROWS_MAX", 0)
    world.take(frames(1, 2))

    def opened(root: str, spec: TableSpec) -> DeltaTable:
        if spec is COVERAGE_TABLE and world.batch == 0:
            world.take(frames(3, 4, first_seq=3))
        return open_table(root, spec)

    monkeypatch.setattr(tables, "open_table", opened)
    [lane] = lane_states(world.root)
    assert (lane.messages, lane.state) == (4, "complete")


def test_a_reader_has_an_answer_also_where_ingests_come_faster_than_it_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whole ingests, the newest that coverage had when it was opened for the last time."""
    monkeypatch.setattr(ingest_module, "LOOSE_ROWS_MAX", 0)
    world.take(frames(1, 2))

    def opened(root: str, spec: TableSpec) -> DeltaTable:
        table = open_table(root, spec)
        if spec is COVERAGE_TABLE:
            world.take(frames(3 + world.batch, first_seq=3 + world.batch))
        return table

    monkeypatch.setattr(tables, "open_table", opened)
    [lane] = lane_states(world.root)
    assert (lane.messages, lane.state) == (world.batch + 1, "complete")


def test_small_files_become_large_ones_and_rollups_still_find_what_is_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "COMPACT_EVERY", 5)
    for seq in range(1, 10):
        world.take(frames(seq, first_seq=seq))
        if seq == 4:
            assert Rollup(world.root, SYSTEM_CLOCK, run_here).run().created == 3
    assert len(DeltaTable(f"{world.root}/points").file_uris()) < 9
    assert world.points() == once(*range(1, 10))
    result = Rollup(world.root, SYSTEM_CLOCK, run_here).run()
    assert (result.created, result.restated) == (0, 3)


def test_every_table_carries_its_schema_version(world: World) -> None:
    for spec in INGEST_TABLES:
        table = DeltaTable(f"{world.root}/{spec.name}")
        assert table.metadata().configuration["backhaul.schema"] == str(SCHEMA_VERSION)
        assert table.metadata().description == spec.description
