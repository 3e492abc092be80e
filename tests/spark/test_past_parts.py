"""What a chart of the past is made of, without tables: buckets, runs of texts, gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_spark.serve.gaps import GAPS_MAX, Gap, Hours, gaps, silences
from backhaul_spark.serve.kept_tails import KeptTail, KeptTails
from backhaul_spark.serve.plan import HOUR_US, LEVELS_US, MINUTE_US, Level, plan
from backhaul_spark.serve.sums import TEXT_MAX, Sums, TextRun, TextRuns

T0_US = 1_767_225_600_000_000
readings = st.lists(
    st.tuples(
        st.integers(-5 * HOUR_US, 60 * HOUR_US),
        st.floats(allow_nan=False, allow_infinity=True, width=32),
    ),
    max_size=60,
)
ranges = st.tuples(st.integers(T0_US, T0_US + 30 * HOUR_US), st.integers(1, 400 * HOUR_US))


@given(ranges, st.integers(10, 4000), st.sampled_from(["point", "minute"]))
def test_a_plan_covers_its_range_in_no_more_buckets_than_asked(
    where: tuple[int, int], points_max: int, finest: Level
) -> None:
    from_us, to_us = where[0], sum(where)
    found = plan(from_us, to_us, points_max, finest)
    assert 1 <= found.count <= points_max
    assert found.start_us <= from_us < found.start_us + found.width_us
    assert found.end_us - found.width_us < to_us <= found.end_us
    assert found.start_us % found.width_us == 0, "a chart that moves shows the same buckets"
    length = LEVELS_US.get(found.level, 1)
    assert found.width_us % length == 0, "a window of a rollup lies in one bucket"
    assert finest == "point" or found.level != "point"


@given(readings, ranges, st.integers(10, 100))
def test_no_peak_is_lost_and_none_is_counted_twice(
    said: list[tuple[int, float]], where: tuple[int, int], points_max: int
) -> None:
    of = plan(where[0], sum(where), points_max)
    sums = Sums(of, points_max)
    times = np.asarray([T0_US + at for at, _ in said], np.int64)
    values = np.asarray([value for _, value in said], np.float64)
    for part in np.array_split(np.arange(len(said)), 3):
        sums.add_readings(times[part], values[part])
    inside = [
        (int(at), float(value))
        for at, value in zip(times, values, strict=True)
        if of.start_us <= at < of.end_us
    ]
    shown = sums.shown()
    assert shown.counts.sum() == len(inside) == sums.count
    if not inside:
        return
    big = np.finfo(np.float64).max
    assert shown.least.min() == np.clip(min(value for _, value in inside), -big, big)
    assert shown.greatest.max() == np.clip(max(value for _, value in inside), -big, big)
    assert list(shown.times_us) == sorted(shown.times_us)
    assert len(shown.times_us) <= points_max
    if shown.width_us:
        for at, low, high, count in zip(
            shown.times_us, shown.least, shown.greatest, shown.counts, strict=True
        ):
            here = [value for when, value in inside if at <= when < at + shown.width_us]
            assert len(here) == count
            assert low == np.clip(min(here), -big, big)
            assert high == np.clip(max(here), -big, big)
    else:
        assert list(shown.times_us) == sorted(at for at, _ in inside)


def test_few_readings_are_shown_as_they_are_and_windows_never_are() -> None:
    of = plan(T0_US, T0_US + 10 * HOUR_US, 10, "minute")
    sums = Sums(of, 10)
    sums.add_readings(np.asarray([T0_US + 7]), np.asarray([1.5]))
    assert (sums.shown().times_us[0], sums.shown().width_us) == (T0_US + 7, 0)
    one = np.asarray([T0_US])
    sums.add_windows(one, np.asarray([-1.0]), np.asarray([9.0]), np.asarray([60]))
    shown = sums.shown()
    assert (shown.least[0], shown.greatest[0], shown.counts[0]) == (-1.0, 9.0, 61)
    assert shown.width_us == of.width_us


def test_runs_of_two_sources_are_one_series() -> None:
    runs = TextRuns()
    runs.add([(0, "idle"), (10, "idle"), (20, "idle"), (50, "drive")])
    runs.add([(30, "charge"), (40, "idle"), (45, "idle")])
    assert runs.shown(10) == (
        [
            TextRun(0, 20, "idle"),
            TextRun(30, 30, "charge"),
            TextRun(40, 45, "idle"),
            TextRun(50, 50, "drive"),
        ],
        0,
    )
    kept, more = runs.shown(2)
    assert (kept, more) == ([TextRun(0, 20, "idle"), TextRun(40, 45, "idle")], 2), "the longest"
    runs.add([(60, "x" * 1000)])
    assert len(runs.shown(10)[0][-1].value) == TEXT_MAX + 1


def test_the_reason_of_a_gap_is_that_of_its_hours() -> None:
    states = ["complete", "waiting", "waiting", "explained", "complete", "complete"]
    hours = Hours((T0_US + at * HOUR_US, state) for at, state in enumerate(states))
    end = T0_US + 8 * HOUR_US
    silent = [Gap(T0_US + 2 * HOUR_US, T0_US + 5 * HOUR_US, "silent"), Gap(end - HOUR_US, end, "")]
    found, more = gaps(hours, silent, T0_US, end)
    assert more == 0
    assert [((gap.from_us - T0_US) / HOUR_US, gap.reason) for gap in found] == [
        (1, "waiting"),
        (3, "explained"),
        (4, "silent"),
        (7, "waiting"),
    ]
    assert found[0].to_us == T0_US + 3 * HOUR_US
    assert hours.complete_to(T0_US) == T0_US + HOUR_US
    assert hours.complete_to(T0_US + 3 * HOUR_US) == T0_US + 6 * HOUR_US
    assert hours.complete_to(T0_US + HOUR_US) is None
    many = [Gap(T0_US + at * 10, T0_US + at * 10 + 5, "silent") for at in range(GAPS_MAX + 7)]
    assert [len(gaps(Hours([]), many, T0_US, end)[0]), gaps(Hours([]), many, T0_US, end)[1]] == [
        GAPS_MAX,
        7,
    ]


@pytest.mark.parametrize("width_us", [0, MINUTE_US])
def test_a_silence_is_much_longer_than_the_usual_step(width_us: int) -> None:
    steady = T0_US + np.arange(60) * MINUTE_US
    broken = np.concatenate([steady[:20], steady[40:]])
    end = int(steady[-1]) + MINUTE_US
    assert silences(steady, width_us, T0_US, end) == []
    [gap] = silences(broken, width_us, T0_US, end)
    assert (gap.from_us, gap.to_us) == (int(steady[19]) + width_us, int(steady[40]))
    assert [gap.to_us for gap in silences(broken, width_us, T0_US - HOUR_US, end)] == [
        T0_US,
        int(steady[40]),
    ]
    assert silences(steady[:0], width_us, T0_US, end) == [Gap(T0_US, end, "silent")]


def test_a_kept_message_that_is_another_one_by_now_counts_for_nothing() -> None:
    def batch(*places: tuple[int, int]) -> pa.RecordBatch:
        seqs, stored = zip(*places, strict=True)
        columns = [pa.array(seqs, pa.int64()), pa.array(stored, pa.timestamp("us"))]
        return pa.RecordBatch.from_arrays(columns, ["stream_seq", "stored_at"])

    def seqs(batches: Any) -> list[int]:
        return [seq for each in batches for seq in each.column("stream_seq").to_pylist()]

    tails = KeptTails(4 * batch((1, 1), (2, 2)).nbytes)
    there: dict[str, Any] = {"created": "then", "start": 1, "last": 9}
    kept = KeptTail("then", 1, (batch((3, 30)), batch((5, 50))))
    assert kept.after(batch((5, 50), (7, 70))) == batch((7, 70))
    for other in (batch((5, 51), (7, 70)), batch((7, 70))):
        assert kept.after(other) is None, "another message, or none, is there now"
    tails.keep("VID-1", "UP_00", kept, 0)
    assert tails.find("VID-1", "UP_00", **there) == kept
    assert tails.find("VID-1", "UP_00", **there | {"start": 0}) is None
    assert tails.find("VID-2", "UP_00", **there) is None
    for gone in ({"created": "later"}, {"last": 4}):
        tails.keep("VID-1", "UP_00", kept, 0)
        assert tails.find("VID-1", "UP_00", **there | gone) is None
        assert tails.find("VID-1", "UP_00", **there) is None
    tails.keep("VID-1", "UP_00", KeptTail("then", 1, (batch((3, 30), (4, 40)), batch((6, 60)))), 4)
    found = tails.find("VID-1", "UP_00", **there | {"start": 4})
    assert found is not None
    assert (found.start, seqs(found.batches)) == (4, [4, 6])
    for number in range(5):  # the one that was asked for longest ago makes room
        tails.keep(f"VID-{number}", "UP_00", KeptTail("then", 1, (batch((1, 1), (2, 2)),)), 0)
    assert tails.find("VID-0", "UP_00", **there) is None
    assert tails.find("VID-4", "UP_00", **there) is not None
    large = KeptTail("then", 1, (batch((1, 1), (2, 2), (3, 3)),))
    tails.keep("VID-4", "UP_00", large, 0)
    assert tails.find("VID-4", "UP_00", **there) is None, "too large for one device"
