"""What the technician's page shows: newest values, charts, and sums of what waits. Pure."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.commit.contents import Frame, Points
from backhaul_agent.page import live_values
from backhaul_agent.page.live_values import ARRIVALS_MAX, ARRIVED_BYTES_MAX, LiveValues
from backhaul_agent.page.past import TEXT_CHARS_MAX, PastChart
from backhaul_agent.status.waiting import HOUR_NS, GivenUp, WaitingRows, WaitingSums
from backhaul_codec import Opaque, Point, encode_frame

SECOND_NS = 10**9


def shown(live: LiveValues, since: int = 0) -> dict[str, Any]:
    live.look_into()
    return {f"{each['node']}.{each['type']}": each["value"] for each in live.since(since)[1]}


def test_of_each_series_the_newest_stays_and_only_what_changed_is_told() -> None:
    live = LiveValues({"soc": "%", "pump.flow.left": "l/min"})
    live.note(Points("battery", [Point("battery", "soc", 1, 80.0)]), 9)
    assert shown(live) == {}, "nobody looks"
    live.watched = True
    live.note(
        Points("battery", [Point("battery", "soc", 5, 80.0), Point("battery", "soc", 4, 70.0)]), 9
    )
    body = encode_frame([Point("pump", "flow", 3, 1.5, "left")], epoch=0, seq=0)
    live.note(Frame("pump", body, 1, (3, 3)), len(body))
    assert shown(live) == {"battery.soc": 80.0, "pump.flow": 1.5}
    version, told = live.since(0)
    assert {each["type"]: each.get("unit") for each in told} == {"soc": "%", "flow": "l/min"}
    assert live.since(version)[1] == []
    live.take([Point("battery", "soc", 6, 81.0), Point("battery", "soc", 2, 1.0)])
    assert shown(live, version) == {"battery.soc": 81.0}
    live.take([Point("battery", "soc", 7, 0.0, tombstone=1)])
    assert live.since(version)[1][0]["tombstone"] is True
    live.forget()
    assert (shown(live), live.watched) == ({}, False)


def test_what_json_cannot_say_and_what_is_long_is_shown_all_the_same(monkeypatch: Any) -> None:
    live = LiveValues({})
    monkeypatch.setattr(live_values, "SERIES_MAX", 3)
    live.take([Point("n", "nan", 1, math.nan), Point("n", "text", 1, "x" * 5000)])
    live.take([Point("n", "json", 1, Opaque(6, b'{"a":[1]}')), Point("n", "more", 1, 1.0)])
    live.take([Point("n", "json", 0, Opaque(6, b'"' + b"y" * 5000 + b'"'))])
    values = shown(live)
    assert (values["n.nan"], values["n.json"]) == ("NaN", {"a": [1]})
    assert len(values["n.text"]) == live_values.VALUE_CHARS_MAX + 1
    assert "n.more" not in values, "series are bounded"


def test_a_flood_costs_its_newest_part() -> None:
    live = LiveValues({})
    live.watched = True
    for number in range(3 * ARRIVALS_MAX):
        live.note(Points("n", [Point("n", f"t{number}", number, 1.0)]), 9)
    assert len(shown(live)) == ARRIVALS_MAX
    live.forget()
    live.watched = True
    for number in range(100):
        live.note(Points("n", [Point("n", f"t{number}", number, "x" * 10**5)]), 10**5)
    held = shown(live)
    assert len(held) == ARRIVED_BYTES_MAX // 10**5
    assert {len(each) for each in held.values()} == {live_values.VALUE_CHARS_MAX + 1}


@given(
    st.lists(st.tuples(st.integers(0, 999), st.floats(-1e6, 1e6)), min_size=1, max_size=200),
    st.integers(10, 60),
)
def test_no_peak_of_a_chart_is_lost_and_none_is_made(
    points: list[tuple[int, float]], buckets: int
) -> None:
    chart = PastChart(0, 1000, buckets)
    for time, value in points:
        chart.add(([time], [value]))
    told = chart.as_json()
    assert min(told["min"]) == min(value for _, value in points)
    assert max(told["max"]) == max(value for _, value in points)
    assert sum(told["n"]) == len(points)
    assert len(told["n"]) <= buckets
    assert told["t_us"] == sorted(told["t_us"])


def test_one_reading_stands_at_its_own_time() -> None:
    chart = PastChart(0, 100 * SECOND_NS, 10)
    chart.add(([3 * SECOND_NS, 55 * SECOND_NS, 51 * SECOND_NS], [1.0, 2.0, 4]))
    told = chart.as_json()
    assert told["t_us"] == [3_000_000, 55_000_000]
    assert (told["min"], told["max"]) == ([1.0, 2.0], [1.0, 4.0])
    chart.add(([81 * SECOND_NS, 82 * SECOND_NS], [1.0, 2.0]))
    assert chart.as_json()["t_us"][-1] == 82_000_000, "no bucket is later than the newest reading"


def test_texts_are_runs_each_until_the_next() -> None:
    chart = PastChart(0, 100, 10)
    chart.add(([40_000, 10_000, 20_000], ["off", "on", "on"]))
    told = chart.as_json()
    assert told["kind"] == "text"
    assert told["runs"] == [[10, 40, "on"], [40, 40, "off"]]
    chart = PastChart(0, 100, 10)
    chart.add(([1000], [Opaque(6, b'["' + b"y" * 5000 + b'"]')]))
    assert len(chart.as_json()["runs"][0][2]) == TEXT_CHARS_MAX


def test_what_waits_is_summed_by_lane_and_by_every_hour_that_it_reaches_into() -> None:
    waiting = WaitingSums(
        given_up=[GivenUp("bulk", 1, 1, 9, "room"), GivenUp("bulk", 1, 20, 20, "age")]
    )
    early, late = 10 * HOUR_NS + 5, 12 * HOUR_NS
    rows = [
        WaitingRows(10, 10, False, 3, 300, early),
        WaitingRows(10, 12, True, 1, 50, late),
        WaitingRows(None, None, False, 2, 20, None),
    ]
    waiting.add("bulk", 1, rows)
    waiting.add("live", 1, [])
    told = waiting.as_json()
    bulk, live = told["lanes"]
    assert bulk == {
        "lane": "bulk", "epoch": 1, "messages": 6, "bytes": 370, "held_messages": 1, "oldest_ns": early,
    }  # fmt: skip
    assert (live["messages"], live["oldest_ns"]) == (0, None)
    assert [(each["from_ns"] // HOUR_NS, each["messages"]) for each in told["hours"]] == [
        (12, 1), (11, 1), (10, 4),
    ]  # fmt: skip
    assert [each["reason"] for each in told["given_up"]] == ["age", "room"]


def test_a_message_over_many_years_is_not_told_hour_by_hour_for_ever() -> None:
    waiting = WaitingSums()
    waiting.add("bulk", 1, [WaitingRows(0, 10**6, False, 1, 1, 0)])
    assert len(waiting.as_json()["hours"]) <= 24 * 92
