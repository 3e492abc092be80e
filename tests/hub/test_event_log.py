"""Events at the hub: sourced from UP by transform, each read once, doubt named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.assurance.completeness import (
    ALSO_IMPORTED,
    HourReport,
    Missing,
    Reasoned,
)
from backhaul_codec.points import JSON
from backhaul_hub.twin.event_log import EventLog, hiding, read_event, standing

ARMED = "fleet.prod.veh.VID-001.evt.armed"


def body(seq: int, time: int = 100, *, epoch: int = 7, **said: Any) -> bytes:
    value = Opaque(JSON, json.dumps({"kind": "armed", **said}).encode())
    return encode_point(Point("", "armed", time, value), epoch=epoch, seq=seq)


def test_an_event_is_what_the_vehicle_said() -> None:
    found = read_event(ARMED, body(3, 1_777_636_800_250_000_000, reason="pilot", vid="forged"))
    assert found is not None
    assert found.to_json() == {
        "vid": "VID-001",
        "timestamp": "2026-05-01T12:00:00.25Z",
        "time": 1_777_636_800_250_000_000,
        "kind": "armed",
        "reason": "pilot",
        "epoch": 7,
        "seq": 3,
    }


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (ARMED, b""),
        (ARMED, b"{}"),
        (ARMED, body(0)),
        (ARMED, encode_point(Point("", "armed", 1, 5.0), epoch=7, seq=1)),
        (ARMED, encode_point(Point("", "armed", 1, Opaque(JSON, b"[]")), epoch=7, seq=1)),
        (ARMED, encode_point(Point("", "armed", 1, Opaque(JSON, b"{")), epoch=7, seq=1)),
        (ARMED, encode_frame([Point("n", "a", 1, 5.0), Point("n", "a", 2, 5.0)], epoch=7, seq=1)),
        ("fleet.prod.veh.VID-001.evt", body(1)),
        ("fleet.prod.veh.VID-001.evt.%6", body(1)),
        ("fleet.prod.veh.-.evt.armed", body(1)),
    ],
)
def test_what_is_no_event_is_counted_and_no_more(subject: str, message: bytes) -> None:
    assert read_event(subject, message) is None
    log = EventLog(0, 10)
    log.add(subject, message)
    assert log.found() == ([], 0, 0, 1, 0, ())


ALERT = "fleet.prod.veh.VID-001.evt.alert.hot.raised.0af1"


def alert_body(id_: str = "VID-001:hot:raised:5", time: int = 5, **more: Any) -> bytes:
    said = {"vid": "VID-009", "time": time, "id": id_, "text": "61 °C", "rule": "hot", **more}
    return json.dumps(said).encode()


def test_an_alert_is_an_event_of_the_device_in_its_subject() -> None:
    found = read_event(ALERT, alert_body(value=61.0))
    assert found is not None
    assert found.to_json() == {
        "vid": "VID-001",
        "timestamp": "1970-01-01T00:00:00.000000005Z",
        "time": 5,
        "kind": "alert",
        "reason": "61 °C",
        "data": {"rule": "hot", "value": 61.0},
        "id": "VID-001:hot:raised:5",
    }


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (ALERT, b""),
        (ALERT, b"[]"),
        (ALERT, b"{}"),
        (ALERT, b"[" * 100_000),
        (ALERT, rb'{"vid": "a", "time": 1, "id": "x", "text": "\ud800"}'),
        (ALERT, alert_body("")),
        (ALERT, alert_body(time=-1)),
        (ALERT, alert_body(time=1 << 63)),
        (ALERT.replace("VID-001", "-"), alert_body()),
        (ALERT.replace(".0af1", ""), alert_body()),
        (ALERT + ".more", alert_body()),
    ],
    ids=[
        "empty",
        "list",
        "bare",
        "deep",
        "half",
        "no id",
        "past",
        "future",
        "vid",
        "short",
        "long",
    ],
)
def test_what_is_no_alert_is_counted_and_no_more(subject: str, message: bytes) -> None:
    assert read_event(subject, message) is None


def test_alerts_of_one_moment_stand_beside_a_vehicles_events() -> None:
    log = EventLog(0, 10)
    for id_ in ("b", "a"):
        log.add(ALERT, alert_body(id_, 100))
    log.add(ARMED, body(3, 100))
    found = log.found()
    assert [event.id for event in found.events] == ["a", "b", ""]
    assert (found.repeats, found.unreadable) == (0, 0)


def test_alerts_that_say_the_same_of_themselves_are_all_told() -> None:
    """Whoever may publish alerts may give two of them one id, and has no say in what is found."""
    log = EventLog(0, 2)
    for number in range(3):
        log.add(f"{ALERT}{number}", alert_body(value=number))
    assert [event.said["data"]["value"] for event in log.found().events] == [1, 2]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(7, 8)), max_size=40),
    st.integers(1, 5),
    st.integers(0, 12),
)
def test_each_event_is_found_once_by_its_time_whatever_came_twice(
    arrived: list[tuple[int, int]], count_max: int, since: int
) -> None:
    log = EventLog(since, count_max)
    for seq, epoch in arrived:
        log.add(ARMED, body(seq, time=20 - seq, epoch=epoch))
    once = sorted((20 - seq, epoch, seq) for seq, epoch in set(arrived) if 20 - seq >= since)
    found = log.found()
    assert [(it.time, it.epoch, it.seq) for it in found.events] == once[-count_max:]
    assert found.earlier == len(once) - len(found.events)
    assert found.repeats == sum(20 - seq >= since for seq, _ in arrived) - len(once)


@pytest.mark.parametrize(
    ("state", "report"),
    [
        ("complete", HourReport(0, "complete", (7,))),
        ("complete", HourReport(0, "waiting", (7,), missing=(Missing("bulk", 7, 1, 2),))),
        ("waiting", HourReport(0, "waiting", (7,), missing=(Missing("live", 7, 1, 2),))),
        ("waiting", HourReport(0, "waiting", (7,), why="the vehicle has not spoken since")),
        ("complete", HourReport(0, "complete", (7,), why=ALSO_IMPORTED)),
        ("explained", HourReport(0, "explained", (7,), (), (Reasoned("live", 7, 1, 2, "full"),))),
        ("complete", HourReport(0, "explained", (7,), (), (Reasoned("bulk", 7, 1, 2, "full"),))),
    ],
)
def test_an_hour_hides_events_where_the_live_lane_is_in_doubt(
    state: str, report: HourReport
) -> None:
    assert hiding(report) == state


def test_a_stream_that_is_not_heard_is_named() -> None:
    sources = [
        {"name": "UP_00", "lag": 2, "active": 10**9},
        {"name": "UP_01", "lag": 0, "active": 9 * 10**9},
        {"name": "UP_02", "lag": 1, "active": -1},
    ]
    assert standing({"sources": sources}) == (3, ("UP_01", "UP_02"))
    assert standing({}) == (0, ())
