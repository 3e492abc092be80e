"""A reading that is said again is in points once, and never less than once, whichever comes first."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from backhaul_agent.sync.digests import messages_of
from backhaul_codec import Point, encode_frame, encode_point, restamp
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.subjects import node_frame_subject, point_subject
from backhaul_codec.wire.messages import is_said_again
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest import once as once_of_day
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.jobs.maintain import Keeping, Maintenance
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables import delta as tables
from backhaul_spark.tables import said_again
from backhaul_spark.tables.delta import SCHEMA_KEY
from backhaul_spark.tables.schemas import SAID_AGAIN_TABLE, SCHEMA_VERSION
from tests.support.spark_frames import T0_NS, message_batch, stored, task

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]

    from backhaul_codec import Value

pytestmark = pytest.mark.slow

NAN = float("nan")
VALUES: list[Value] = [81.2, NAN, -0.0, 2**64 - 1, -5, "fast", "", b"\x00\xff"]


class World:
    """Tables, a stream, and one vehicle's live lane."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.ingest = Ingest(self.root, SYSTEM_CLOCK)
        self.batch = -1
        self.next_seq = 1

    def take(self, *tasks: list[pa.RecordBatch]) -> None:
        self.batch += 1
        number = self.ingest.tables.next_ingest
        reports = [
            task(self.root, number, *parts, standing=self.ingest.standing) for parts in tasks
        ]
        self.ingest.commit("app", self.batch, reports)

    def stored(self, leaf: str, body: bytes) -> pa.RecordBatch:
        at, self.next_seq = self.next_seq, self.next_seq + 1
        return message_batch("UP_1", stored([body], leaf=leaf, first_seq=at))

    def first(self, point: Point, seq: int) -> pa.RecordBatch:
        leaf = point_subject(point.node, point.type, point.key)
        return self.stored(leaf, encode_point(point, epoch=1, seq=seq))

    def again(self, *points: Point, seq: int) -> pa.RecordBatch:
        """What the agent itself makes of heads that differ."""
        heads = {HeadKey.of("", point): Head.of(point) for point in points}
        (message,) = messages_of(heads)
        assert message.subject == node_frame_subject(points[0].node)
        assert is_said_again(message.body)
        return self.stored(message.subject, restamp(message.body, epoch=1, seq=seq))

    def found(self) -> Counter[str]:
        """Return how often each reading is there, by its type."""
        rows = DeltaTable(f"{self.root}/points").to_pyarrow_table(columns=["type"]).to_pylist()
        return Counter(row["type"] for row in rows)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def points() -> list[Point]:
    return [Point("gps", f"t{n}", T0_NS + n, value) for n, value in enumerate(VALUES)]


def once(*names: str) -> Counter[str]:
    return Counter(names)


ALL = once(*(point.type for point in points()))


def test_what_came_before_is_left_out(world: World) -> None:
    for seq, point in enumerate(points(), 1):
        world.take([world.first(point, seq)])
    world.take([world.again(*points(), seq=99)])
    world.take([world.again(*points(), seq=100)])
    assert world.found() == ALL
    assert DeltaTable(f"{world.root}/said_again").to_pyarrow_table().num_rows == 0


def test_what_comes_in_the_same_batch_is_left_out(world: World) -> None:
    firsts = [world.first(point, seq) for seq, point in enumerate(points(), 1)]
    again = world.again(*points(), seq=99)
    world.take(firsts, [again])
    assert world.found() == ALL


def test_the_only_one_there_is_is_kept_and_its_first_is_left_out_when_it_comes(
    world: World,
) -> None:
    """As of a value that was evicted: or that the vehicle sent once more after all."""
    world.take([world.again(*points(), seq=99)])
    assert world.found() == ALL
    world.take([world.first(point, seq) for seq, point in enumerate(points(), 1)])
    assert world.found() == ALL
    late = Point("gps", "t0", T0_NS + 7, 81.2)  # another reading, of another time
    world.take([world.first(late, 100)])
    assert world.found() == ALL + once("t0")


def test_another_process_knows_what_was_kept(world: World) -> None:
    world.take([world.again(*points(), seq=99)])
    world.ingest = Ingest(world.root, SYSTEM_CLOCK)
    world.take([world.first(point, seq) for seq, point in enumerate(points(), 1)])
    assert world.found() == ALL


def test_notes_without_end_take_no_room_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vehicle that says again what it never said has one of each; every task is handed all."""
    monkeypatch.setattr(said_again, "NOTES_MAX", 3)
    for number in range(20):
        world.take([world.again(Point("gps", "speed", T0_NS + number, 1.5), seq=number + 1)])
    newest = [T0_NS + 17, T0_NS + 18, T0_NS + 19]
    assert [time_ns for time_ns, _ in world.ingest.standing] == newest
    again = Ingest(world.root, SYSTEM_CLOCK).standing
    assert list(again) == list(world.ingest.standing)


def test_only_what_is_missing_of_a_frame_is_added(world: World) -> None:
    here, gone = points()[:2]
    world.take([world.first(here, 1)])
    world.take([world.again(here, gone, seq=2)])
    rows = DeltaTable(f"{world.root}/points").to_pyarrow_table().to_pylist()
    assert sorted((row["seq"], row["index"], row["type"]) for row in rows) == [
        (1, 0, "t0"),
        (2, 1, "t1"),
    ]
    assert {row["letter"] for row in rows} == {"p"}


def test_a_repeat_of_what_was_said_again_adds_nothing(world: World) -> None:
    heads = {HeadKey.of("", point): Head.of(point) for point in points()}
    (message,) = messages_of(heads)
    body = restamp(message.body, epoch=1, seq=99)
    for _ in range(2):
        world.take([world.stored(message.subject, body)])
    assert world.found() == ALL


def test_what_only_looks_alike_is_kept(world: World) -> None:
    base = Point("gps", "mode", T0_NS, "fast")
    others = [
        Point("gps", "mode", T0_NS + 1, "fast"),
        Point("gps", "mode", T0_NS, "slow"),
        Point("gps", "mode", T0_NS, "fast", "k"),
        Point("gps", "mode", T0_NS, "fast", "", 2),
        Point("gps", "mode", T0_NS, "fast", "", 0, "hub:anna"),
        Point("gps", "mode", T0_NS, b"fast"),
    ]
    world.take([world.first(base, 1)])
    for seq, other in enumerate(others, 2):
        world.take([world.again(other, seq=seq)])
    assert world.found() == Counter({"mode": 1 + len(others)})


def test_a_vehicle_that_says_more_again_than_any_agent_is_written_as_it_speaks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put aside passes through the driver: so it is bounded, and nothing is lost beyond."""
    many = [Point("gps", f"t{n}", T0_NS, float(n)) for n in range(said_again.FRAME_POINTS_MAX + 1)]
    body = encode_frame(many, epoch=1, seq=1, said_again=True)
    world.take([world.stored("p.gps", body)])
    assert len(world.found()) == len(many)
    assert not world.ingest.standing
    monkeypatch.setattr(said_again, "ASIDE_BYTES_MAX", 0)
    frames = [world.again(point, seq=2 + n) for n, point in enumerate(points())]
    world.take(frames)
    assert len(world.ingest.standing) == 1
    assert world.found() == Counter(point.type for point in many) + ALL


def doubled(world: World) -> None:
    """Leave what older agents did: heads said again without a word that they are."""
    for seq, point in enumerate(points(), 1):
        world.take([world.first(point, seq)])
    for seq, point in enumerate(points()[::2], 50):
        world.take([world.first(point, seq)])
    frame = encode_frame(points()[:3], epoch=1, seq=60)
    world.take([world.stored("p.gps", frame)])
    telemetry = encode_frame(points()[:1] * 2, epoch=1, seq=1)
    world.take([world.stored("f.gps", telemetry)])


def test_what_older_agents_said_twice_is_taken_out_by_maintain(world: World) -> None:
    doubled(world)
    assert sum(world.found().values()) == len(points()) + 4 + 3 + 2
    Rollup(world.root, SYSTEM_CLOCK, run_here).run()
    rollups = DeltaTable(f"{world.root}/rollups").to_pyarrow_table().to_pylist()
    done = Maintenance(world.root, SYSTEM_CLOCK).run(Keeping())
    assert done.doubled_points == 4 + 3
    # Telemetry has no heads: what a program says twice there is two readings.
    assert world.found() == ALL + once("t0", "t0")
    rows = DeltaTable(f"{world.root}/points").to_pyarrow_table().to_pylist()
    assert {row["seq"] for row in rows if row["letter"] == "p"} == set(range(1, 9))
    assert Rollup(world.root, SYSTEM_CLOCK, run_here).run().restated == 0
    assert DeltaTable(f"{world.root}/rollups").to_pyarrow_table().to_pylist() == rollups
    assert Maintenance(world.root, SYSTEM_CLOCK).run(Keeping()).doubled_points == 0
    world.ingest.tables.points.update_incremental()
    world.take([world.first(points()[0], 70)])
    assert Maintenance(world.root, SYSTEM_CLOCK).run(Keeping()).doubled_points == 1


def test_a_day_that_is_too_large_to_be_compared_at_once_is_compared_by_devices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    doubles = once_of_day.doubles

    def counted(batches: Iterable[pa.RecordBatch]) -> set[once_of_day.Place]:
        held = list(batches)
        compared.append(sum(batch.num_rows for batch in held))
        return doubles(held)

    monkeypatch.setattr(once_of_day, "doubles", counted)
    monkeypatch.setattr(once_of_day, "ROWS_AT_ONCE", 4)
    seq = 0
    for _ in range(2):
        for device in ("VID-001", "VID-002", "VID-003"):
            for number in range(3):
                seq += 1
                body = encode_point(Point("gps", "t", T0_NS + number, 1.5), epoch=1, seq=seq)
                leaf = point_subject("gps", "t", "")
                found = stored([body], device=device, leaf=leaf, first_seq=seq)
                world.take([message_batch("UP_1", found)])
    done = Maintenance(world.root, SYSTEM_CLOCK).run(Keeping())
    assert done.doubled_points == 9
    assert sum(compared) == 18
    assert max(compared) < 18
    assert sum(world.found().values()) == 9


def test_a_history_shows_each_once_before_maintain_as_well(world: World) -> None:
    doubled(world)
    series = parse_series("VID-001", "gps.t2")
    answer = History(world.root).ask(series, resolution="raw")
    assert answer.rows.column("value").to_pylist() == [-0.0]


def test_an_older_table_is_brought_up_to_date(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of version 2, which knew nothing of what is said again: points says nothing of that table."""
    beside = tables._beside
    with monkeypatch.context() as older:
        older.setattr(
            tables, "_beside", lambda spec: "" if spec is SAID_AGAIN_TABLE else beside(spec)
        )
        doubled(world)
    shutil.rmtree(f"{world.root}/said_again")
    points_table = DeltaTable(f"{world.root}/points")
    points_table.alter.set_table_properties({SCHEMA_KEY: "2"}, raise_if_not_exists=False)
    world.ingest = Ingest(world.root, SYSTEM_CLOCK)
    world.take([world.again(*points(), seq=99)])
    configuration = DeltaTable(f"{world.root}/points").metadata().configuration
    assert configuration[SCHEMA_KEY] == str(SCHEMA_VERSION)
    assert sum(world.found().values()) == len(points()) + 4 + 3 + 2


def test_a_batch_that_was_not_committed_leaves_no_note(world: World) -> None:
    class Crash(Exception):
        pass

    def die(step: str) -> None:
        if step == "coverage":
            raise Crash

    again = world.again(*points(), seq=99)
    world.ingest = Ingest(world.root, SYSTEM_CLOCK, die)
    with pytest.raises(Crash):
        world.take([again])
    world.ingest = Ingest(world.root, SYSTEM_CLOCK)
    assert not world.ingest.standing
    world.batch -= 1
    world.take([again])
    assert world.found() == ALL
