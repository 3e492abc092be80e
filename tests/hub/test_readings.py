"""The newest telemetry of every series, from frames and from what a vehicle says ahead of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from backhaul_codec import Opaque, Point, Value, encode_bundle, encode_frame, encode_point
from backhaul_hub.broadcast.points import told, told_reading
from backhaul_hub.continuity.examine import LAYOUT_BYTES_MAX, examine
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.sync.heads import HeadChange
from backhaul_hub.sync.newest_readings import (
    BEHIND_FRAMES,
    SERIES_MAX,
    DeviceSeries,
    Reading,
    Readings,
)
from tests.support.hub_sync import DEVICE, START_NS, FakeClock, Hub

if TYPE_CHECKING:
    from backhaul_hub.sync.core import Announcement

SECOND_NS = 10**9
SOC = DeviceSeries("battery", "soc", "")


def some_readings(
    *, listening: bool = False, keep: bool = True, clock: FakeClock | None = None
) -> Readings:
    return Readings(clock or FakeClock(), FutureRule(5.0), listening=listening, keep=keep)


def take(
    readings: Readings, subject: str, body: bytes, *, now: bool = True, is_new: bool = True
) -> None:
    readings.on_message(examine(f"up.{DEVICE}.{subject}", body), is_new)
    if now:
        readings.take_changes()


def frame(readings: Readings, *points: Point, is_new: bool = True) -> None:
    body = encode_frame(points, epoch=1, seq=1)
    take(readings, f"f.{points[0].node}", body, is_new=is_new)


def heads(readings: Readings, value: object) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    body = encode_point(Point("agent", "heads", 1, Opaque(6, data)), epoch=1, seq=1)
    take(readings, "e.heads", body)


SOME = st.lists(st.tuples(st.sampled_from(["soc", "temp"]), st.integers(0, 40)), min_size=1)


@given(st.lists(st.tuples(SOME, st.booleans()), max_size=8), st.booleans())
def test_whatever_the_order_the_newest_stays(
    frames: list[tuple[list[tuple[str, int]], bool]], listening: bool
) -> None:
    readings = some_readings(listening=listening)
    newest: dict[DeviceSeries, Reading] = {}
    for some, now in frames:
        points = [Point("battery", name, second * SECOND_NS, second / 8) for name, second in some]
        take(readings, "f.battery", encode_frame(points, epoch=1, seq=1), now=now)
        for point in points:
            series = DeviceSeries("battery", point.type, "")
            if series not in newest or newest[series].time < point.time:
                assert isinstance(point.value, float)
                newest[series] = Reading(point.time, point.value)
    readings.take_changes()
    assert readings.of(DEVICE) == newest
    for series in newest if listening else ():
        stamps = [new.reading.time for new in readings.fresh if new.series == series]
        assert stamps == sorted(set(stamps))


def test_what_is_said_ahead_is_newer_than_the_backlog_behind_it() -> None:
    readings = some_readings(listening=True)
    heads(readings, {"points": [["battery", "soc", "", 9 * SECOND_NS, 81.5]]})
    frame(readings, Point("battery", "soc", 8 * SECOND_NS, 80.0))
    assert readings.of(DEVICE) == {SOC: Reading(9 * SECOND_NS, 81.5)}
    assert len(readings.fresh) == 1


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (b"81.0", 81.0),
        (b"81", 81),
        (b'"on"', "on"),
        (b'{"a": 1}', Opaque(6, b'{"a":1}')),
        (b"true", Opaque(6, b"true")),
    ],
)
def test_values_come_as_json_has_them(said: bytes, meant: Value) -> None:
    readings = some_readings()
    heads(readings, b'{"points": [["battery", "soc", "", 1, %s]]}' % said)
    value = readings.of(DEVICE)[SOC].value
    assert type(value) is type(meant)
    assert value == meant


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"{", b"[]", b"{}", b'{"points": 3}', b'{"points": [[1]]}'),
        b'{"points": [["battery", "soc", "", 1, ' + b"[" * 100_000 + b"]" * 100_000 + b"]]}",
        b'{"points": [["battery", "soc", "", 99999999999999999999, 1]]}',
        b'{"points": [["' + b"x" * 300 + b'", "soc", "", 1, 1]]}',
        b'{"points": [["battery", "soc", "", 1, 99999999999999999999999]]}',
        b'{"points": [["battery", "soc", "", 1, 1e999]]}',
    ],
)
def test_what_is_no_list_of_heads_changes_nothing(said: bytes) -> None:
    readings = some_readings()
    heads(readings, said)
    take(readings, "e.heads", encode_point(Point("agent", "heads", 1, 2.0), epoch=1, seq=1))
    assert readings.of(DEVICE) == {}


def test_a_reading_from_the_future_does_not_stand_until_then() -> None:
    readings = some_readings()
    frame(readings, Point("battery", "soc", START_NS + 3600 * SECOND_NS, 1.0))
    frame(readings, Point("battery", "soc", START_NS, 2.0))
    assert readings.of(DEVICE) == {SOC: Reading(START_NS, 2.0)}


def ahead(seconds: float) -> Point:
    return Point("battery", "soc", START_NS + round(seconds * SECOND_NS), 1.0)


@pytest.mark.parametrize("keep", [True, False])
def test_readings_from_the_future_are_counted_each_once(keep: bool) -> None:
    readings = some_readings(keep=keep)
    frame(readings, ahead(0), ahead(5.0))
    assert readings.ahead.report(DEVICE) is None, "5 s may be"
    frame(readings, ahead(0), ahead(5.1), ahead(3600))
    frame(readings, ahead(0), ahead(5.1), ahead(3600), is_new=False)
    frame(readings, ahead(60))
    assert readings.ahead.report(DEVICE) == {
        "points": 3,
        "newest_ns": START_NS + 3600 * SECOND_NS,
        "last_ns": START_NS,
    }
    assert bool(readings.of(DEVICE)) is keep
    assert readings.ahead.report("VID-other") is None


def test_a_device_ahead_of_its_time_is_logged_once_and_so_is_its_recovery() -> None:
    clock = FakeClock()
    readings = some_readings(clock=clock)
    with capture_logs() as logs:
        for _ in range(50):  # one program has a wrong clock, the other has not
            frame(readings, ahead(3600))
            frame(readings, ahead(0))
            clock.ns += SECOND_NS
        assert [log["event"] for log in logs] == ["readings_from_the_future"]
        assert (logs[0]["device"], logs[0]["ahead_s"]) == (DEVICE, 3595.0)
        clock.ns += 58 * SECOND_NS
        frame(readings, ahead(0))
        assert len(logs) == 1
        clock.ns += SECOND_NS
        frame(readings, ahead(0))
        frame(readings, ahead(0))
        assert [log["event"] for log in logs[1:]] == ["readings_no_longer_from_the_future"]
        assert logs[1]["points"] == 50
        frame(readings, ahead(9000))
        assert len(logs) == 3, "and again, when it happens again"


def test_a_device_that_invents_names_fills_only_its_share() -> None:
    readings = some_readings()
    for start in range(0, SERIES_MAX + 1000, 1000):
        frame(readings, *(Point("a", str(number), 1, 1.0) for number in range(start, start + 1000)))
    assert len(readings.of(DEVICE)) == SERIES_MAX
    frame(readings, Point("a", "0", 2, 2.0))
    assert readings.of(DEVICE)[DeviceSeries("a", "0", "")].value == 2.0


def test_no_frame_is_proven_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = some_readings()
    body = encode_frame([Point("battery", "soc", 7, 81.5)], epoch=1, seq=1)
    said = examine(f"up.{DEVICE}.f.battery", body)
    monkeypatch.setattr("backhaul_hub.continuity.examine.frame_layout", None)
    readings.on_message(said, True)
    readings.take_changes()
    assert readings.of(DEVICE)[SOC].value == 81.5


def test_a_large_frame_counts_like_any_other() -> None:
    readings = some_readings()
    frame(
        readings, Point("battery", "note", 6, "x" * LAYOUT_BYTES_MAX), Point("battery", "soc", 7, 2)
    )
    assert readings.of(DEVICE)[SOC].value == 2


def test_of_a_backlog_listeners_are_told_the_newest_alone() -> None:
    readings = some_readings(listening=True)
    for second in range(2 * BEHIND_FRAMES):
        body = encode_frame([Point("battery", "soc", second * SECOND_NS, 1.0)], epoch=1, seq=1)
        take(readings, "f.battery", body, now=False)
    readings.take_changes()
    assert [new.reading.time for new in readings.fresh] == [(2 * BEHIND_FRAMES - 1) * SECOND_NS]
    for second in range(1000, 1003):
        body = encode_frame([Point("battery", "soc", second * SECOND_NS, 1.0)], epoch=1, seq=1)
        take(readings, "f.battery", body, now=False)
    readings.take_changes()
    assert len(readings.fresh) == 4


def test_a_bundle_counts_for_each_of_its_nodes() -> None:
    """Also where two nodes have series of one name, and where one of them alone is newer."""
    readings = some_readings(listening=True)
    first = [Point("battery", "temp", 5, 20.0), Point("motor", "temp", 9, 80.0)]
    take(readings, "b", encode_bundle(first, epoch=1, seq=1))
    then = [Point("battery", "temp", 7, 21.0), Point("motor", "temp", 8, 79.0)]
    take(readings, "b", encode_bundle(then, epoch=1, seq=2))
    frame(readings, Point("gps", "speed", 6, 12.5))
    assert readings.of(DEVICE) == {
        DeviceSeries("battery", "temp", ""): Reading(7, 21.0),
        DeviceSeries("motor", "temp", ""): Reading(9, 80.0),
        DeviceSeries("gps", "speed", ""): Reading(6, 12.5),
    }
    told_of = [(new.series.node, new.reading.value) for new in readings.fresh]
    assert told_of == [("battery", 20.0), ("motor", 80.0), ("battery", 21.0), ("gps", 12.5)]


def test_a_bundle_is_told_by_node_to_whom_that_node_concerns() -> None:
    """Whoever may see one node of a device hears nothing of the others in the same message."""
    readings = some_readings(listening=True)
    points = [Point("battery", "soc", START_NS, 81.5), Point("camera", "faces", START_NS, 3)]
    take(readings, "b", encode_bundle(points, epoch=1, seq=1))
    groups = {"battery": ("energy", "VID-001"), "camera": ("security", "VID-001")}
    for new in readings.fresh:
        message = told_reading(new, groups[new.series.node])
        other = "camera" if new.series.node == "battery" else "battery"
        assert {subject.split(".")[1] for subject in message.subjects} == {*groups[new.series.node]}
        assert other not in str(message)
    assert len(readings.fresh) == 2


def test_readings_of_a_bundle_from_the_future_are_counted_and_left_out_each() -> None:
    readings = some_readings()
    clock_ns = FakeClock().now_ns()
    points = [Point("a", "t", clock_ns, 1), Point("b", "t", clock_ns + 3600 * SECOND_NS, 2)]
    take(readings, "b", encode_bundle(points, epoch=1, seq=1))
    assert [series.node for series in readings.of(DEVICE)] == ["a"]
    report = readings.ahead.report(DEVICE)
    assert report is not None
    assert report["points"] == 1


def test_a_reading_is_told_to_every_ancestor() -> None:
    readings = some_readings(listening=True)
    frame(readings, Point("battery", "soc", START_NS, 81.5, "max.1"))
    (new,) = readings.fresh
    message = told_reading(new, ("VID-001%2Fbattery", "VID-001", "fleet"))
    assert message.subjects == (
        "up.VID-001%2Fbattery.VID-001%2Fbattery.soc.max%2E1",
        "up.VID-001.VID-001%2Fbattery.soc.max%2E1",
        "up.fleet.VID-001%2Fbattery.soc.max%2E1",
    )
    assert json.loads(message.payload) == {
        "device": DEVICE,
        "node": "battery",
        "type": "soc",
        "key": "max.1",
        "time": START_NS,
        "value": 81.5,
        "dtype": "float64",
        "tombstone": 0,
        "origin": "",
    }


def test_a_head_is_told_along_the_tree_or_to_watchers_alone() -> None:
    hub = Hub(FakeClock())
    (announcement,) = _announcements(hub)
    assert told(announcement, along_the_tree=False).subjects == (f"hub.changed.{DEVICE}",)
    assert set(told(announcement, along_the_tree=True).subjects) == {
        f"hub.changed.{DEVICE}",
        "up.fleet.VID-001%2Fbattery.limit.%",
        "up.VID-001.VID-001%2Fbattery.limit.%",
        "up.VID-001%2Fbattery.VID-001%2Fbattery.limit.%",
    }
    hub.db.close()


def _announcements(hub: Hub) -> list[Announcement]:
    body = encode_point(Point("battery", "limit", START_NS, 80.0), epoch=1, seq=1)
    hub.take([("p.battery.limit.%", 1, body)])
    found = list(hub.core.announcements)
    assert isinstance(found[0].change, HeadChange)
    return found
