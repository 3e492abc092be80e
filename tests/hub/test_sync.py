"""Heads at the hub: merged, stored, compared, and the same as on the vehicle in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.sync.conflicts import insertion
from backhaul_hub.sync.writes import Put
from tests.hub.both_ends import LIMIT, Ends
from tests.support.hub_sync import DEVICE, START_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
FLOOR = HeadKey("", "battery", "floor")


@pytest.fixture
def ends() -> Iterator[Ends]:
    some = Ends()
    yield some
    some.hub.db.close()


def test_a_vehicles_point_is_a_head_and_outlives_a_crash(ends: Ends) -> None:
    point = ends.vehicle.put("battery", "limit", 80.0)
    ends.link.up()
    ends.hub.crash()
    head = ends.heads.get(LIMIT)
    assert head is not None
    assert (head.value, head.time, head.origin) == (80.0, point.time, "")


def test_what_the_hub_writes_reaches_the_vehicle_and_wins(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 80.0)
    ends.link.up()
    ends.hub.set(Put(LIMIT, 90.0), who="anna")
    ends.link.down()
    head = ends.vehicle.heads.get(LIMIT)
    assert head is not None
    assert (head.value, head.origin) == (90.0, "hub:anna")


def test_a_write_outlives_a_crash_before_it_was_published(ends: Ends) -> None:
    ends.hub.set(Put(LIMIT, 90.0), published=False)
    ends.hub.crash()
    assert ends.hub.core.outbox.waiting(DEVICE) == 1
    ends.hub.publish()
    ends.hub.crash()
    assert ends.hub.core.outbox.waiting(DEVICE) == 0
    ends.link.down()
    assert ends.vehicle.heads.root() == ends.heads.root()


def test_stamps_of_the_hub_only_grow(ends: Ends) -> None:
    ahead = START_NS + 4_000_000_000
    ends.vehicle.heads.offer("", Point("battery", "limit", ahead, 1.0))
    ends.vehicle.send_head(LIMIT)
    ends.link.up()
    (first,) = ends.hub.set(Put(FLOOR, 1.0))
    (second,) = ends.hub.set(Put(FLOOR, 2.0))
    assert ahead < first.time < second.time
    ends.clock.ns -= 3_600_000_000_000
    ends.hub.crash()
    (third,) = ends.hub.set(Put(FLOOR, 3.0))
    assert second.time < third.time


def test_a_hub_that_lost_its_heads_stamps_beyond_what_the_vehicle_has_seen(ends: Ends) -> None:
    seen = ends.clock.ns + 2_000_000_000
    ends.vehicle.event("seen", {"hub_ns": seen})
    ends.link.up()
    ends.hub.crash()
    (point,) = ends.hub.set(Put(LIMIT, 1.0))
    assert point.time > seen


def test_a_stamp_that_a_device_only_claims_to_have_seen_moves_nothing(ends: Ends) -> None:
    ends.vehicle.event("seen", {"hub_ns": ends.clock.ns + 10**18})
    ends.link.up()
    (point,) = ends.hub.set(Put(LIMIT, 1.0))
    assert point.time == ends.clock.ns


def test_several_points_of_a_node_go_as_one_frame(ends: Ends) -> None:
    ends.vehicle.put("battery", "name", "old")
    ends.link.up()
    ends.hub.set(Put(LIMIT, 90.0), Put(FLOOR, 10.0))
    assert list(ends.hub.down) == [f"in.{DEVICE}.p.battery"]
    ends.link.down()
    assert ends.vehicle.heads.root() == ends.heads.root()


def test_a_later_frame_brings_what_an_earlier_one_brought(ends: Ends) -> None:
    """DOWN keeps one message a subject, so the second takes the first's place."""
    ends.hub.set(Put(LIMIT, 90.0), Put(FLOOR, 10.0))
    ends.hub.set(Put(LIMIT._replace(type="high"), 1.0), Put(LIMIT._replace(type="low"), 2.0))
    assert len(ends.hub.down) == 1
    ends.link.down()
    assert len(ends.vehicle.heads) == 4


def test_digests_that_differ_end_equal(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 1.0)
    ends.vehicle.put("motor", "limit", 2.0)
    ends.vehicle.up.clear()  # lost for good
    ends.hub.set(Put(HeadKey("", "gps", "rate"), 3.0))
    ends.hub.set(Put(HeadKey("gateway", "gps", "nodeType"), "gps"))
    ends.hub.down.clear()
    assert ends.hub.core.peer(DEVICE).in_sync is False
    ends.link.settle()
    assert ends.vehicle.heads.root() == ends.heads.root()
    assert ends.hub.core.peer(DEVICE).in_sync is True
    ends.hub.crash()
    assert ends.hub.core.peer(DEVICE).in_sync is True


def test_what_was_passed_over_on_the_way_down_is_told_of_when_the_hub_looks_again(
    ends: Ends,
) -> None:
    """The vehicle does not ask: it knows of no link that was away."""
    ends.vehicle.put("battery", "limit", 80.0)
    ends.vehicle.digest()
    ends.link.up()
    ends.hub.set(Put(LIMIT, 90.0))
    ends.hub.down.clear()
    assert ends.hub.core.outbox.waiting(DEVICE) == 0
    ends.hub.core.compare_again(DEVICE)
    ends.hub.publish()
    assert list(ends.hub.down) == [f"in.{DEVICE}.s.digest"]
    for _ in range(3):
        ends.link.down()
        ends.link.up()
    assert ends.vehicle.heads.root() == ends.heads.root()
    assert ends.hub.core.peer(DEVICE).in_sync is True
    ends.hub.core.compare_again(DEVICE)
    assert ends.hub.core.unequal == set()


def test_a_device_that_never_said_what_it_holds_is_told_too(ends: Ends) -> None:
    ends.hub.core.compare_again(DEVICE)
    assert ends.hub.core.unequal == {DEVICE}


def test_equal_digests_are_not_answered(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 1.0)
    ends.vehicle.digest()
    ends.link.up()
    assert ends.hub.down == {}
    assert ends.hub.core.peer(DEVICE).in_sync is True


def test_a_node_that_is_too_large_for_a_frame_goes_point_by_point(ends: Ends) -> None:
    for index in range(3):
        noise = bytes((index * 7 + byte * byte) % 251 for byte in range(900_000))
        ends.hub.set(Put(LIMIT._replace(key=str(index)), Opaque(9, noise)))
    ends.hub.down.clear()
    ends.link.settle()
    assert ends.vehicle.heads.root() == ends.heads.root()
    assert max(map(len, ends.hub.down.values())) < 1_000_000


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("seen", {}), ("seen", {"hub_ns": "x"}), ("seen", []), ("clock", {"quality": 3})),
        *(("digest", {"root": 1}), ("digest", {"want": "battery"}), ("digest", {"want": ["none"]})),
        *(("heads", {"points": 3}), ("heads", {"points": [[1]]})),
    ],
)
def test_a_word_that_is_none_changes_nothing(ends: Ends, kind: str, value: object) -> None:
    ends.vehicle.event(kind, value)
    ends.vehicle.send(f"e.{kind}", encode_point(Point("", kind, 1, 2.0), epoch=1, seq=9))
    for said in (b"{", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        ends.vehicle.send(
            f"e.{kind}", encode_point(Point("", kind, 1, Opaque(6, said)), epoch=1, seq=9)
        )
    ends.vehicle.put("battery", "limit", 1.0)
    ends.link.up()
    assert len(ends.heads) == 1
    assert ends.hub.down == {}


def test_a_stamp_from_the_future_is_refused_and_comes_again(ends: Ends) -> None:
    real_ns = ends.clock.ns
    ends.clock.ns += 3600 * 10**9
    ends.vehicle.put("battery", "limit", 80.0)
    ends.clock.ns = real_ns
    ends.link.up()
    assert len(ends.heads) == 0
    assert list(ends.hub.down) == [f"in.{DEVICE}.s.restamp.battery.limit.%"]
    assert ends.hub.core.peer(DEVICE).in_sync is False
    ends.link.settle()
    head = ends.heads.get(LIMIT)
    assert head is not None
    assert (head.value, head.time) == (80.0, real_ns)
    assert ends.hub.core.peer(DEVICE).in_sync is True


def test_a_frame_with_one_stamp_from_the_future_is_refused_whole(ends: Ends) -> None:
    early = ends.clock.ns + 6 * 10**9
    points = [Point("battery", "limit", ends.clock.ns, 1.0), Point("battery", "floor", early, 2.0)]
    ends.hub.take([("p.battery", 1, encode_frame(points, epoch=1, seq=1))])
    assert len(ends.heads) == 0
    ends.hub.publish()
    assert len(ends.hub.down) == 2


# Conflicts ---------------------------------------------------------------------------------------


def test_both_wrote_without_knowing_of_the_other(ends: Ends) -> None:
    ends.vehicle.event("clock", {"quality": "holdover", "offset_ns": 1, "error_ns": 2, "boot": 3})
    ends.vehicle.put("battery", "limit", 80.0)
    ends.tick()
    ends.hub.set(Put(LIMIT, 90.0), who="anna")
    ends.link.up()
    (conflict,) = ends.hub.core.conflicts.of(DEVICE)
    assert (conflict.winner.head.value, conflict.winner.clock) == (90.0, "synced")
    assert (conflict.loser.head.value, conflict.loser.clock) == (80.0, "holdover")
    assert conflict.winner.head.origin == "hub:anna"
    ends.hub.crash()
    assert ends.hub.core.conflicts.of(DEVICE) == [conflict]


def test_the_hub_may_lose_as_well(ends: Ends) -> None:
    ends.hub.set(Put(LIMIT, 90.0))
    ends.tick()
    ends.vehicle.put("battery", "limit", 80.0)
    ends.link.up()
    (conflict,) = ends.hub.core.conflicts.of(DEVICE)
    assert (conflict.winner.head.value, conflict.loser.head.value) == (80.0, 90.0)


def test_who_writes_what_the_other_saw_is_in_no_conflict(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 80.0)
    ends.link.up()
    ends.tick()
    ends.hub.set(Put(LIMIT, 90.0))
    ends.link.down()
    ends.tick()
    ends.vehicle.put("battery", "limit", 85.0)
    ends.link.up()
    assert ends.hub.core.conflicts.of() == []
    head = ends.heads.get(LIMIT)
    assert head is not None
    assert head.value == 85.0


def test_the_same_value_twice_is_no_conflict(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 80.0)
    ends.hub.set(Put(LIMIT, 80.0))
    ends.link.up()
    assert ends.hub.core.conflicts.of() == []


def test_a_deletion_is_in_conflict_with_a_value(ends: Ends) -> None:
    ends.hub.set(Put(LIMIT, 80.0))
    ends.tick()
    ends.vehicle.put("battery", "limit", 80.0, tombstone=1)
    ends.link.up()
    (conflict,) = ends.hub.core.conflicts.of()
    assert conflict.winner.head.deleted
    assert not conflict.loser.head.deleted


def test_a_point_that_comes_again_is_no_second_conflict(ends: Ends) -> None:
    ends.vehicle.put("battery", "limit", 80.0)
    ends.tick()
    ends.hub.set(Put(LIMIT, 90.0))
    again = list(ends.vehicle.up)
    ends.link.up()
    ends.hub.take(again)
    ends.hub.crash()
    ends.tick()
    ends.hub.set(Put(LIMIT, 95.0))
    ends.hub.take(again)
    assert len(ends.hub.core.conflicts.of()) == 1


def test_a_word_counts_from_its_place_on_though_it_arrives_late(ends: Ends) -> None:
    """A gap was filled after what comes behind it: the point is older than the word."""
    (_, seq, body) = (ends.vehicle.put("battery", "limit", 80.0), *ends.vehicle.up.pop()[1:])
    ends.tick()
    (written,) = ends.hub.set(Put(LIMIT, 90.0))
    ends.vehicle.event("seen", {"hub_ns": written.time})
    ends.link.up()
    ends.hub.take([("p.battery.limit.%", seq, body)])
    assert len(ends.hub.core.conflicts.of()) == 1


def test_the_ledger_is_bounded_and_counts_what_it_forgets(ends: Ends) -> None:
    some = Ends(conflicts_max=3)
    for number in range(5):
        series = LIMIT._replace(type=f"limit{number}")
        some.vehicle.put("battery", series.type, 1.0)
        some.tick()
        some.hub.set(Put(series, 2.0))
        some.link.up()
        if number == 1:  # the second is settled, so it goes first
            ledger = some.hub.core.conflicts
            settled = ledger.settled(ledger.conflicts[2], "accepted", "hub", some.clock.ns)
            some.hub.db.write([insertion([settled])])
            ledger.settle(settled)
    some.hub.crash()
    ledger = some.hub.core.conflicts
    assert list(ledger.conflicts) == [3, 4, 5]
    assert (ledger.dropped_resolved, ledger.dropped_unresolved) == (1, 1)
    some.hub.db.close()
