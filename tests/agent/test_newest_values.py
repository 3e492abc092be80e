"""Newest values ahead of a backlog: fresh, in turn, and never more than their part of the link."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_agent.ledger.system_events import event
from backhaul_agent.sync.newest_values import (
    BURST_BYTES_MIN,
    BURST_S,
    EVERY_S,
    LAG_S,
    LINK_PART,
    MESSAGE_BYTES,
    MESSAGE_BYTES_MAX,
    HeadsFirst,
    Lag,
    NewestValues,
    TokenBucket,
)
from backhaul_codec import Opaque, Point, decode

SLOW = 2500.0  # bytes a second: 20 kbit/s


def points(count: int, time: int = 1) -> list[Point]:
    return [Point("n", f"t{number:04}", time, float(number)) for number in range(count)]


def test_the_newest_of_each_series_is_told_once() -> None:
    values = NewestValues()
    values.take([Point("n", "t", 5, 1.0), Point("n", "t", 7, 2.0), Point("n", "t", 6, 3.0)])
    assert values.untold(1000) == [["n", "t", "", 7, 2.0]]
    assert values.untold(1000) == []
    values.take([Point("n", "t", 6, 9.0)])
    assert values.untold(1000) == []
    values.take([Point("n", "t", 8, 4, "k"), Point("n", "t", 8, "x")])
    assert values.untold(1000) == [["n", "t", "k", 8, 4], ["n", "t", "", 8, "x"]]


def test_what_has_waited_longest_goes_first() -> None:
    values = NewestValues()
    values.take(points(100))
    first = values.untold(1000)
    values.take(points(100, time=2))
    second = values.untold(1000)
    assert second[0][1] == f"t{len(first):04}"
    told = [entry[1] for entry in first + second]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    "value",
    [b"bytes", Opaque(9, b"x"), float("nan"), float("inf"), "x" * 300, Opaque(6, b"nonsense")],
)
def test_what_json_cannot_say_or_is_large_waits_for_its_frame(value: object) -> None:
    values = NewestValues()
    values.take([Point("n", "t", 1, value)])  # type: ignore[arg-type]
    assert values.waiting == 0


def test_json_is_json() -> None:
    values = NewestValues()
    values.take([Point("n", "t", 1, Opaque(6, b'{"a":[1]}'))])
    assert values.untold(1000) == [["n", "t", "", 1, {"a": [1]}]]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 500)), max_size=50))
def test_a_bucket_lets_no_more_through_than_its_rate_and_one_fill(
    steps: list[tuple[float, float]],
) -> None:
    bucket = TokenBucket(rate=10, capacity=100, now_s=0)
    now_s = spent = 0.0
    for wait_s, units in steps:
        now_s += wait_s
        if bucket.refill(now_s) >= units:
            bucket.spend(units)
            spent += units
        assert spent <= 100 + 10 * now_s + 1e-6


def test_a_lane_lags_when_what_it_lacks_is_old() -> None:
    lag = Lag()
    assert not lag.behind(0, last_seq=10, watermark=0)
    assert not lag.behind(LAG_S - 1, last_seq=50, watermark=0)
    assert lag.behind(LAG_S, last_seq=60, watermark=9)
    assert not lag.behind(LAG_S, last_seq=60, watermark=10)
    assert lag.behind(LAG_S + 5, last_seq=90, watermark=59)
    assert not lag.behind(LAG_S + 100, last_seq=90, watermark=90)


def test_at_link_up_everything_unconfirmed_is_a_backlog() -> None:
    first = HeadsFirst(SLOW, now_s=0)
    assert first.due_s is None
    first.link_up(100)
    assert first.due_s == 100
    assert first.wanted(100, {"bulk": (5, 4)}) == ["bulk"]
    assert not first.wanted(102, {"bulk": (5, 4)})  # by itself it is on its way
    first.link_up(200)
    assert not first.wanted(200, {"bulk": (5, 5)})


def test_each_lane_lags_by_itself() -> None:
    first = HeadsFirst(SLOW, now_s=0)
    ends = {"bulk": (90, 90), "n_gps": (5, 4), "n_battery": (7, 7)}
    assert first.wanted(100, ends) == []
    assert first.wanted(100 + LAG_S, ends | {"bulk": (900, 900)}) == ["n_gps"]
    first.link_up(200)
    assert first.wanted(200, ends | {"n_battery": (8, 7)}) == ["n_gps", "n_battery"]


def test_nothing_is_told_that_the_frames_have_said() -> None:
    first = HeadsFirst(SLOW, now_s=0)
    first.values.take(points(5))
    first.link_up(0)
    assert not first.wanted(0, {"bulk": (5, 5)})
    assert first.message(0) == []


@pytest.mark.slow
@given(
    series=st.integers(1, 400),
    rate=st.sampled_from([300.0, SLOW, 125_000.0]),
    minutes=st.integers(1, 5),
)
@settings(deadline=None, max_examples=30)
def test_an_hour_of_lag_costs_its_part_of_the_link(series: int, rate: float, minutes: int) -> None:
    """Over any time: one burst, then never more than the part; and every series has its turn."""
    first = HeadsFirst(rate, now_s=0)
    first.link_up(0)
    now_s, spent, told = 0.0, 0, set()
    while now_s < minutes * 60:
        assert first.wanted(now_s, {"bulk": (1_000_000 + int(now_s), 0)}) or now_s
        first.values.take(points(series, time=int(now_s)))
        if message := first.message(now_s):
            size = len(msgspec.json.encode(message))
            assert size <= MESSAGE_BYTES_MAX
            first.told(size)
            spent += size + MESSAGE_BYTES
            told |= {entry[1] for entry in message}
        now_s += EVERY_S
    one_value = 40
    burst = max(BURST_BYTES_MIN, rate * BURST_S)
    assert spent <= burst + rate * LINK_PART * now_s + one_value
    if spent < rate * LINK_PART * now_s / 2:  # the link had room for more
        assert len(told) == series


def test_newest_values_are_packed_and_any_reader_opens_them() -> None:
    values = NewestValues()
    walk = Random(1)
    values.take(
        Point(f"sensor{number:02d}", name, 1_795_787_218_393_000_000, walk.randrange(800) / 10)
        for number in range(30)
        for name in ("temperature", "humidity")
    )
    told = values.untold(MESSAGE_BYTES_MAX)
    packed = event("heads", {"points": told}, 1_795_787_219_000_000_000, packed=True)
    plain = event("heads", {"points": told}, 1_795_787_219_000_000_000)
    assert len(told) == 60
    assert len(packed.body) < len(plain.body) / 5
    read, same = (decode(each.body, type="heads").points for each in (packed, plain))
    assert read == same
