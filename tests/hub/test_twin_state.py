"""TWIN_STATE: the content of its messages, and the order in which they wait."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point
from backhaul_codec.points import JSON
from backhaul_hub.timestamps import rfc3339
from backhaul_hub.twin.state_messages import (
    VALUE_JSON_BYTES_MAX,
    StateKey,
    StateValue,
    Waiting,
    read_state,
    state_body,
    state_subject,
)
from tests.support.hub_sync import DEVICE, START_NS
from tests.support.strategies import exact, points

SECOND_NS = 10**9
SOC = StateKey(DEVICE, "battery", "soc", "")


def test_a_message_is_the_one_of_the_documentation() -> None:
    value = StateValue(1_777_636_800_250_000_000, 81.2, "synced")
    assert state_subject("prod", SOC) == "fleet.prod.veh.VID-001.state.battery.soc"
    assert json.loads(state_body(SOC, value)) == {
        "vid": "VID-001",
        "timestamp": "2026-05-01T12:00:00.25Z",
        "data": {
            "node": "battery",
            "type": "soc",
            "key": "",
            "value": 81.2,
            "dtype": "float64",
            "time": 1_777_636_800_250_000_000,
            "quality": "synced",
        },
    }


def test_a_name_stays_one_token() -> None:
    key = StateKey(DEVICE, "cell.1", "t °C", "a b")
    assert state_subject("lab", key) == "fleet.lab.veh.VID-001.state.cell%2E1.t%20%C2%B0C.a%20b"


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (10 * SECOND_NS, "1970-01-01T00:00:10Z"),
        ((1 << 63) - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(1 << 63), "1677-09-21T00:12:43.145224192Z"),
    ],
)
def test_a_time_is_exact(time_ns: int, text: str) -> None:
    assert rfc3339(time_ns) == text


@given(points(), st.booleans(), st.sampled_from([None, "synced", "unset"]))
def test_what_was_published_is_read_back(point: Point, deleted: bool, quality: str | None) -> None:
    key = StateKey(DEVICE, point.node, point.type, point.key)
    body = state_body(key, StateValue(point.time, point.value, quality, deleted))
    found = read_state(body)
    assert found is not None
    same, read = found
    assert (same, read.time, read.quality, read.deleted) == (key, point.time, quality, deleted)
    if isinstance(point.value, Opaque) and point.value.dtype == JSON:
        assert state_body(key, read) == body, "the same JSON, perhaps with other spaces"
    else:
        plain = replace(point, tombstone=0, origin="")
        assert exact(replace(plain, value=read.value)) == exact(plain) or point.value != point.value


def test_a_value_beyond_what_a_message_takes_is_left_out_and_said_to_be() -> None:
    body = state_body(SOC, StateValue(START_NS, "\0" * VALUE_JSON_BYTES_MAX))
    data = json.loads(body)["data"]
    assert (data["value"], data["dtype"], data["too_large"]) == (None, "text", True)
    assert len(body) < 1000
    assert read_state(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"vid": "a.b", "data": {"node": "n", "type": "t", "key": "", "value": 1.5, "dtype": "float64", "time": 1}}',
        b'{"vid": "VID-001", "data": {"node": "n", "type": "t", "key": "", "value": "x", "dtype": "float64", "time": 1}}',
        b'{"vid": "VID-001", "data": {"node": "n", "type": "t", "key": "", "value": 1.5, "dtype": "float64", "time": 9223372036854775808}}',
    ],
)
def test_what_somebody_else_put_there_is_no_value(body: bytes) -> None:
    assert read_state(body) is None


TIMES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=30)


@given(TIMES, TIMES, st.integers(0, 3))
def test_of_each_series_the_newest_waits_whatever_fails_meanwhile(
    before: list[tuple[str, int]], after: list[tuple[str, int]], taken: int
) -> None:
    waiting = Waiting()
    newest: dict[StateKey, int] = {}
    on_its_way: list[tuple[StateKey, StateValue]] = []
    for part in (before, after):
        for node, time in part:
            key = SOC._replace(node=node)
            newest[key] = max(newest.get(key, 0), time)
            waiting.add(key, StateValue(time, 1.0))
        on_its_way = on_its_way or waiting.take(taken)
        assert len(on_its_way) <= taken
    waiting.put_back(on_its_way)
    assert {key: value.time for key, value in waiting.take(99)} == newest
    assert len(waiting) == 0
