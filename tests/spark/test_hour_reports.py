"""Completeness of hours as a table: from messages through ingest, restated as more comes in."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from backhaul_codec import Point, encode_frame
from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_spark.cli.main import cli
from backhaul_spark.completeness import facts as completeness_facts
from backhaul_spark.completeness.hour_reports import HourReports, Judged, hour_reports
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.ingest import batch as ingest
from tests.spark.completeness_world import HoursLater, World
from tests.support.spark_fleet import Fleet
from tests.support.spark_frames import T0_NS, frame

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_hours_are_reported_and_restated_as_what_was_missing_comes(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 15), *range(16, 41)))
    assert world.report_hours() == Judged(0, 2, created=4)
    assert world.states() == ["complete", "waiting", "complete", "complete"]
    _, hour = hour_reports(world.root)[1]
    assert hour.missing == (("bulk", 7, 15, 15),)
    world.take(world.bulk(15))
    assert world.report_hours() == Judged(2, 4, changed=1)
    assert world.states() == ["complete"] * 4
    assert [row["version"] for row in world.rows()] == [1, 2, 1, 1]
    assert [row["ingest"] for row in world.rows()] == [2, 4, 2, 2]


def test_receipts_explain(world: World) -> None:
    receipt = {"lane": "bulk", "epoch": 7, "lo": 15, "hi": 16, "reason": "evicted: full"}
    world.take(*world.marks(), world.bulk(*range(1, 15), *range(17, 41)))
    world.report_hours()
    world.take(world.event("receipt", 6, receipt))
    world.report_hours()
    assert world.states() == ["complete", "explained", "complete", "complete"]
    row = world.rows()[1]
    assert (row["missing"], row["explained"]) == (0, 2)
    assert json.loads(row["explained_ranges"]) == [["bulk", 7, 15, 16, "evicted: full"]]


def test_hours_go_on_while_a_vehicle_is_silent_and_the_one_under_way_is_not_judged(
    world: World,
) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    world.report_hours()
    world.clock.hours = 6.5
    assert world.report_hours() == Judged(2, 2, created=2)
    assert world.states()[4:] == ["waiting", "waiting"]
    assert hour_reports(world.root)[4][1].why == "the vehicle has not spoken since this hour"
    world.take(world.mark(6, 6.2, 45), world.bulk(*range(41, 46)))
    assert world.report_hours() == Judged(2, 4, changed=2)
    assert world.states() == ["complete"] * 6


def test_a_run_with_nothing_new_changes_nothing(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 40)))
    world.report_hours()
    before = world.rows()
    assert world.report_hours() == Judged(2, 2)
    world.take(world.bulk(3))  # a repeat
    assert world.report_hours() == Judged(2, 4)
    assert world.rows() == before


def test_a_ledger_that_turns_up_later_spoils_hours_that_were_complete(world: World) -> None:
    """What an old leaf store still held of a former ledger arrives when its hours are judged."""
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    world.report_hours()
    world.take(world.mark(3, 2.5, 9, epoch=5), world.bulk(2, 3, epoch=5))
    world.report_hours()
    states = world.states()
    assert states[0] == "complete"
    assert "complete" not in states[2:]


def test_a_ledger_that_never_marked_anything_spoils_the_first_hour(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    world.report_hours()
    assert world.states()[0] == "complete"
    world.take(world.bulk(2, 3, epoch=5))
    world.report_hours()
    assert hour_reports(world.root)[0][1].missing == (("bulk", 5, 1, 1),)


def test_a_clock_that_was_set_back_opens_hours_that_were_complete(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    world.report_hours()
    assert world.states() == ["complete"] * 4
    world.take(world.mark(6, 2.5, 50))
    world.report_hours()
    assert world.states() == ["complete", "complete", "waiting", "waiting"]


def test_a_mark_that_was_missing_is_taken_in_where_it_belongs(world: World) -> None:
    marks = world.marks()
    world.take(*marks[:2], *marks[3:], world.bulk(*range(1, 15), *range(16, 41)))
    world.report_hours()
    assert world.states() == ["complete", "waiting", "waiting", "complete"]
    world.take(marks[2])
    world.report_hours()
    assert world.states() == ["complete", "waiting", "complete", "complete"]


def test_what_a_repeated_message_says_is_said_once(world: World) -> None:
    world.take(world.mark(1, 0, 0))
    world.take(world.mark(1, 0, 0))
    assert DeltaTable(f"{world.root}/marks").to_pyarrow_table().num_rows == 1
    assert DeltaTable(f"{world.root}/points").to_pyarrow_table().num_rows == 0


def test_words_that_are_none_are_explained_as_unreadable(world: World) -> None:
    """They were sealed so: asked for again, the same would come."""
    wrong_node = encode_frame([Point("motor", "rpm", T0_NS, 1.0)], epoch=7, seq=15)
    world.take(
        *world.marks(),
        world.bulk(*range(1, 15), *range(16, 41)),
        world.messages([wrong_node], "f.battery"),
        world.event("mark", 6, {"epoch": 8}),
        world.messages([b"garbage", damaged(16)], "f.battery"),
    )
    receipts = DeltaTable(f"{world.root}/receipts").to_pyarrow_table().sort_by("lane").to_pylist()
    assert [(row["lane"], row["lo"], row["hi"], row["reason"]) for row in receipts] == [
        ("bulk", 15, 15, "unreadable: node"),
        ("live", 6, 6, "unreadable: mark"),
    ]
    world.report_hours()
    assert world.states() == ["complete", "explained", "complete", "complete"]


def damaged(seq: int) -> bytes:
    """A message that was not sealed so: asked for again, a good one may come."""
    body = bytearray(frame(seq, epoch=7))
    body[-1] ^= 0xFF
    return bytes(body)


def test_an_ended_epoch_says_how_far_it_was_known(world: World) -> None:
    said = {"old": 7, "new": 8, "why": "older copy", "lanes": {"live": 5, "bulk": 44}}
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    world.take(world.event("epoch", 1, said, 4.2, epoch=8), world.mark(2, 4.2, 0, epoch=8))
    world.clock.hours = 5.5
    world.report_hours()
    _, hour = hour_reports(world.root)[4]
    assert hour.missing == (("bulk", 7, 41, 44),)
    [row] = DeltaTable(f"{world.root}/ended_epochs").to_pyarrow_table().to_pylist()
    assert (row["old"], row["new"], row["why"]) == (7, 8, "older copy")


def test_a_mark_from_the_future_is_not_believed(world: World) -> None:
    world.take(world.mark(1, 24 * 365, 0))
    assert DeltaTable(f"{world.root}/marks").to_pyarrow_table().num_rows == 0


def test_two_at_a_time_do_not_mix(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    slow = HourReports(world.root, world.clock)
    world.report_hours()
    with pytest.raises(TablesBusyError):
        slow.run()
    assert world.states() == ["complete"] * 4


def test_of_two_at_a_time_one_gives_way_also_where_it_supersedes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the former versions of the other, which never committed, would be true with its number."""
    world.take(*world.marks(), world.bulk(*range(1, 15), *range(16, 41)))
    world.report_hours()
    later = HourReports(world.root, HoursLater(5.5))  # there is one hour more, and nothing else
    world.take(world.bulk(15))
    first = HourReports(world.root, world.clock)
    write = first._write

    def meanwhile(*values: Any) -> None:
        with suppress(TablesBusyError):
            later.run()
        write(*values)

    with monkeypatch.context() as patched, suppress(TablesBusyError):
        patched.setattr(first, "_write", meanwhile)
        first.run()
    world.clock.hours = 5.5
    world.report_hours()
    assert world.states() == ["complete"] * 4 + ["waiting"]
    [old] = DeltaTable(f"{world.root}/certificates_superseded").to_pyarrow_table().to_pylist()
    assert (old["version"], old["state"]) == (1, "waiting")


def test_what_comes_and_is_merged_meanwhile_spoils_no_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged coverage carries the number of a later ingest than this run goes by."""
    monkeypatch.setattr(ingest, "LOOSE_ROWS_MAX", 0)
    world.take(*world.marks(), world.bulk(*range(1, 41)))
    slow = HourReports(world.root, world.clock)
    world.take(world.bulk(*range(41, 44)))
    slow.run()
    assert world.states() == ["complete"] * 4


def test_the_command_shows_hours_beside_lanes(world: World) -> None:
    world.take(*world.marks(), world.bulk(*range(1, 15), *range(16, 41)))
    world.report_hours()
    arguments = ["completeness", "--table-root", world.root]
    found = CliRunner().invoke(cli, [*arguments, "--no-update"], catch_exceptions=False)
    assert found.output.splitlines()[-2:] == [
        "VID-001 hours: 3 complete, 1 waiting",
        "  2026-01-01T01:00Z  waiting    bulk 15 (epoch 7) missing",
    ]
    found = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    hours = json.loads(found.output)["hours"]
    assert [hour["state"] for hour in hours][:4] == ["complete", "waiting", "complete", "complete"]
    assert len(hours) > 4, "brought up to date: hours have passed since 2026"


def test_a_fleet_is_judged_the_same_however_many_devices_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, T0_NS + 3 * HOUR_NS)
    for device in ("VID-001", "VID-002", "VID-003"):
        for hour in range(2):
            fleet.send((hour * HOUR_NS, 1.0), device=device)
            fleet.mark(hour + 0.5, hour + 1, device)
    fleet.skip(1, "VID-002")
    fleet.send((0, 1.0), device="VID-002")
    fleet.mark(2.5, 4, "VID-002")

    def judged() -> list[tuple[object, ...]]:
        fleet.report_hours()
        names = ("device", "hour", "state", "missing_ranges", "why")
        return sorted(tuple(row[name] for name in names) for row in fleet.rows("certificates"))

    together = judged()
    assert len({row[0] for row in together}) == 3
    assert len({row[2] for row in together}) > 1
    for name in ("certificates", "certificates_superseded"):
        (tmp_path / name).rename(tmp_path / f"{name}-before")
    monkeypatch.setattr(completeness_facts, "MARKS_AT_ONCE", 1)
    assert judged() == together
