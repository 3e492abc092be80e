"""Two machines in one epoch, as the completeness reports of the history see them: by links, contents and words."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from backhaul_codec import chain, hash_of
from backhaul_codec.assurance.completeness import TWO_MACHINES, HourReport
from backhaul_codec.protocol.words import FORKED, SPARE, spare_of
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_spark.completeness.hour_reports import HourReports, hour_reports
from backhaul_spark.ingest import batch as ingest
from backhaul_spark.tables.delta import transactions
from backhaul_spark.tables.schemas import HASHES_TABLE, INGEST_TABLES
from tests.spark.completeness_world import World
from tests.support.spark_frames import T0_NS, frame

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]

pytestmark = pytest.mark.slow

SOUND = ["complete"] * 4
EPOCH = 7


class Machine:
    """Writes lane bulk of one epoch, each message linked to the one before it."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.hashes = {0: NO_LINK}
        self.bodies: dict[int, bytes] = {}

    def write(self, last: int) -> Machine:
        for seq in range(len(self.bodies) + 1, last + 1):
            body = frame(seq, (self.value,), epoch=EPOCH, start_ns=T0_NS)
            body = chain(body, epoch=EPOCH, seq=seq, link=self.hashes[seq - 1])
            self.bodies[seq], self.hashes[seq] = body, hash_of("f.battery", body)
        return self

    def image(self, seq: int) -> Machine:
        """Return a machine that goes on from there, with readings of its own."""
        other = Machine(2.0)
        other.hashes = {each: self.hashes[each] for each in range(seq + 1)}
        other.bodies = {each: self.bodies[each] for each in range(1, seq + 1)}
        return other


class Vehicle(World):
    """A World whose messages are linked, and whose marks name hashes."""

    def sent(self, machine: Machine, *seqs: int) -> pa.RecordBatch:
        return self.messages([machine.bodies[seq] for seq in seqs], "f.battery")

    def marked(self, machine: Machine, hours: int = 5) -> list[pa.RecordBatch]:
        """Marks at full hours: after 0, 10, 20, 30 and 40 messages."""
        return [self.marked_at(machine, hour) for hour in range(hours)]

    def marked_at(self, machine: Machine, hour: int, said: str | None = None) -> pa.RecordBatch:
        lanes = {"live": hour + 1, "bulk": 10 * hour}
        known = {"bulk": machine.hashes[10 * hour].hex()} if hour else {}
        known |= {"bulk": said} if said else {}
        value = {"epoch": EPOCH, "lanes": lanes, "why": "hour", "chain": known}
        return self.event("mark", hour + 1, value, hour, EPOCH)

    def hours(self) -> list[HourReport]:
        return [hour for _, hour in hour_reports(self.root)]

    def forks(self) -> list[tuple[str, int]]:
        """Lane and first seq that two machines may have written, of each hour of which it is said."""
        return [
            (each.lane, each.low)
            for hour in self.hours()
            for each in hour.explained
            if each.reason == TWO_MACHINES
        ]

    def table(self, name: str) -> Any:
        return DeltaTable(f"{self.root}/{name}").to_pyarrow_table()


@pytest.fixture
def vehicle(tmp_path: Path) -> Vehicle:
    return Vehicle(tmp_path)


@pytest.fixture
def one() -> Machine:
    return Machine().write(40)


def test_each_hour_of_one_history_names_the_hashes_that_are_held(
    vehicle: Vehicle, one: Machine
) -> None:
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 26)))
    vehicle.take(vehicle.sent(one, *range(26, 41)))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    ends = [each for hour in vehicle.hours() for each in hour.chain]
    expected = [
        ("bulk", EPOCH, low, one.hashes[low].hex() if low else "", low + 10, one.hashes[low + 10].hex())
        for low in (0, 10, 20, 30)
    ]  # fmt: skip
    assert ends == expected


def test_a_message_that_links_to_another_than_the_one_before_it_is_a_fork(
    vehicle: Vehicle, one: Machine
) -> None:
    two = Machine(2.0).write(40)
    vehicle.take(*vehicle.marked(one, 3), vehicle.sent(one, *range(1, 21)))
    vehicle.clock.hours = 2.5
    vehicle.report_hours()
    assert vehicle.states() == SOUND[:2]
    # Of the other machine's messages the first ones never came.
    vehicle.take(*vehicle.marked(two)[3:], vehicle.sent(two, *range(21, 41)))
    vehicle.clock.hours = 4.5
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4
    assert vehicle.forks() == [("bulk", 1), ("bulk", 11), ("bulk", 21), ("bulk", 31)]


@pytest.mark.parametrize("together", [True, False])
def test_a_fork_within_one_batch_is_seen(vehicle: Vehicle, one: Machine, together: bool) -> None:
    two = Machine(2.0).write(40)
    parts = [vehicle.sent(one, *range(1, 21)), vehicle.sent(two, *range(21, 41))]
    marks = [*vehicle.marked(one)[:3], *vehicle.marked(two)[3:]]
    vehicle.take(*marks, *(parts if together else reversed(parts)))
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4


def test_a_message_that_comes_with_another_content_is_a_fork_from_there_on(
    vehicle: Vehicle, one: Machine
) -> None:
    two = one.image(24).write(28)
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    vehicle.take(vehicle.sent(two, *range(22, 29)))
    vehicle.report_hours()
    assert vehicle.states() == [*SOUND[:2], "explained", "explained"]
    assert vehicle.forks() == [("bulk", 25), ("bulk", 31)]
    assert [row["version"] for row in vehicle.rows()] == [1, 1, 2, 2]
    # The hours that follow in this epoch know of it.
    vehicle.take(vehicle.sent(one.write(50), *range(41, 51)), vehicle.marked_at(one, 5))
    vehicle.clock.hours = 5.5
    vehicle.report_hours()
    assert vehicle.forks() == [("bulk", 25), ("bulk", 31), ("bulk", 41)]


def test_two_contents_in_one_batch_are_a_fork(vehicle: Vehicle, one: Machine) -> None:
    two = one.image(11).write(12)
    parts = [vehicle.sent(one, *range(1, 41)), vehicle.sent(two, 12)]
    vehicle.take(*vehicle.marked(one), *parts)
    vehicle.report_hours()
    assert vehicle.states() == ["complete", *["explained"] * 3]


def test_where_the_first_message_of_the_other_machine_did_not_come_nobody_knows_from_where(
    vehicle: Vehicle, one: Machine
) -> None:
    """A source has passed some of OUT: it reads a clone's messages from there on."""
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    other = one.image(24).write(35)
    vehicle.take(vehicle.sent(other, *range(32, 36)), vehicle.sent(one, 30, 31))
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4


def test_what_comes_again_as_it_was_changes_nothing(vehicle: Vehicle, one: Machine) -> None:
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    done = vehicle.report_hours()
    assert (done.created, done.changed) == (0, 0)
    assert set(vehicle.table("hashes").column("came").to_pylist()) == {"first", "again"}


def test_of_version_1_nothing_is_proven_and_nothing_is_a_fork(vehicle: Vehicle) -> None:
    vehicle.take(*vehicle.marks(), vehicle.bulk(*range(1, 41)))
    other = frame(5, (9.0,), epoch=EPOCH, start_ns=T0_NS)
    vehicle.take(vehicle.messages([other], "f.battery"))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    assert [hour.chain for hour in vehicle.hours()] == [()] * 4
    assert vehicle.table("hashes").num_rows == 0


def test_a_vehicle_that_goes_on_in_version_2_has_not_forked(vehicle: Vehicle) -> None:
    old = frame(10, epoch=EPOCH, start_ns=T0_NS)
    machine = Machine()
    machine.bodies = dict.fromkeys(range(1, 11), b"")
    machine.hashes |= {10: hash_of("f.battery", old)}
    machine.write(40)
    vehicle.take(vehicle.bulk(*range(1, 11)), vehicle.sent(machine, *range(11, 41)))
    vehicle.take(*(vehicle.marked_at(machine, hour) for hour in (1, 2, 3, 4)))
    vehicle.take(vehicle.mark(1, 0, 0))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    # The last message of version 1 has none here.
    assert [each.high_hash for hour in vehicle.hours() for each in hour.chain] == [
        machine.hashes[seq].hex() for seq in (20, 30, 40)
    ]


@pytest.mark.parametrize(
    ("old", "why"),
    # The vehicle moved messages out of the epoch: another's were in their places.
    [(EPOCH, FORKED), (spare_of(EPOCH), SPARE)],
)
def test_the_vehicles_word_that_the_hub_holds_another_history_is_one(
    vehicle: Vehicle, one: Machine, old: int, why: str
) -> None:
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    vehicle.report_hours()
    # Of what stands in the spare epoch nothing is missing here.
    said = {"old": old, "new": 8, "lanes": {"bulk": 40 if old == EPOCH else 0}, "why": why}
    vehicle.take(vehicle.event("epoch", 1, said, 4.2, epoch=8))
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4


def test_a_mark_that_speaks_of_another_message_than_is_held_is_one(
    vehicle: Vehicle, one: Machine
) -> None:
    two = Machine(2.0).write(40)
    marks = vehicle.marked(one)
    marks[3] = vehicle.marked_at(one, 3, two.hashes[30].hex())
    vehicle.take(*marks, vehicle.sent(one, *range(1, 41)))
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4
    held = [each.high_hash for hour in vehicle.hours() for each in hour.chain]
    assert held == [one.hashes[seq].hex() for seq in (10, 20, 30, 40)]


def test_a_fork_outlives_the_merging_of_ranges(
    vehicle: Vehicle, one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "LOOSE_ROWS_MAX", 0)
    two = Machine(2.0).write(40)
    vehicle.take(vehicle.sent(one, *range(1, 11)))
    vehicle.take(vehicle.sent(one, *range(11, 21)))
    marks = [*vehicle.marked(one)[:3], *vehicle.marked(two)[3:]]
    vehicle.take(*marks, vehicle.sent(two, *range(21, 41)))
    vehicle.take(vehicle.mark(6, 5, 40))
    bulk = [row for row in vehicle.table("coverage").to_pylist() if row["lane"] == "bulk"]
    assert sorted((row["lo"], row["hi"]) for row in bulk) == [(1, 20), (21, 40)]
    vehicle.report_hours()
    assert vehicle.states() == ["explained"] * 4


def test_a_run_that_was_killed_after_it_found_a_fork_is_done_again(
    vehicle: Vehicle, one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    vehicle.take(*vehicle.marked(one), vehicle.sent(one, *range(1, 41)))
    vehicle.report_hours()
    vehicle.take(vehicle.sent(one.image(19).write(20), 20))

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(HourReports, "_commit", killed)
        with pytest.raises(SystemExit):
            vehicle.report_hours()
    assert vehicle.states() == SOUND
    vehicle.report_hours()
    assert vehicle.states() == ["complete", *["explained"] * 3]


NEW = {"coverage": ["link", "hash"], "marks": ["chain"], "certificates": ["chain"]}


def as_version_3(root: str, name: str) -> None:
    """Put a table as schema version 3 had it in the place of what is there, rows and ids kept."""
    uri = f"{root}/{name}"
    table = DeltaTable(uri)
    rows, partition = table.to_pyarrow_table(), table.metadata().partition_columns
    rows = rows.drop_columns(NEW.get(name, []))
    apps = ["backhaul-certificates", "backhaul-run", "backhaul-stamp"]
    apps += ["backhaul-ingest", "backhaul-ingest-start", "backhaul-ingest-before-start"]
    apps += [f"backhaul-ingest-{spec.name}" for spec in INGEST_TABLES if spec is not HASHES_TABLE]
    known = {app: table.transaction_version(app) for app in apps}
    shutil.rmtree(uri)
    old = DeltaTable.create(
        uri,
        schema=rows.schema,
        partition_by=partition,
        configuration={"backhaul.schema": "3"},
        raise_if_key_not_exists=False,
    )
    ids = transactions({app: each for app, each in known.items() if each is not None})
    write_deltalake(old, rows, mode="append", commit_properties=ids)


def test_tables_of_version_3_go_on_without_hashes_of_what_they_have(
    vehicle: Vehicle, one: Machine
) -> None:
    vehicle.take(*vehicle.marked(one, 3), vehicle.sent(one, *range(1, 21)))
    vehicle.clock.hours = 2.5
    vehicle.report_hours()
    for spec in INGEST_TABLES:
        if spec is not HASHES_TABLE:
            as_version_3(vehicle.root, spec.name)
    as_version_3(vehicle.root, "certificates")
    shutil.rmtree(f"{vehicle.root}/hashes")
    assert vehicle.states() == SOUND[:2]
    vehicle.report_hours()  # before any ingest by this backhaul
    vehicle.take(*(vehicle.marked_at(one, hour) for hour in (3, 4)))
    vehicle.take(vehicle.sent(one, *range(21, 41)))
    vehicle.clock.hours = 4.5
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    ends = [[each.high_hash for each in hour.chain] for hour in vehicle.hours()]
    assert ends == [[], [], [one.hashes[30].hex()], [one.hashes[40].hex()]]
    # A content of what came before may be another one: of that nobody here knows.
    vehicle.take(vehicle.sent(Machine(2.0).write(5), 5))
    vehicle.report_hours()
    assert vehicle.states() == SOUND
    vehicle.take(vehicle.sent(one.image(28).write(29), 29))
    vehicle.report_hours()
    assert vehicle.states() == [*SOUND[:2], "explained", "explained"]
    assert [row["version"] for row in vehicle.rows()] == [1, 1, 2, 2]
