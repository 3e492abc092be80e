"""One series out of a frame: what decoding all of it and picking comes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Kind, Point, Value, check, decode, encode_frame, encode_point
from backhaul_codec.points import INT64_MAX, INT64_MIN
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_codec.wire.select import select
from tests.support import strategies

NOON = 1_700_000_000_000_000_000
EVER = (INT64_MIN, INT64_MAX + 1)
Found = list[tuple[object, ...]]


def picked(points: list[Point], type_: str, key: str, from_ns: int, to_ns: int) -> Found:
    return [
        strategies.exact(Point("", "", p.time, p.value))
        for p in points
        if (p.type, p.key) == (type_, key) and from_ns <= p.time < to_ns and p.tombstone % 2 == 0
    ]


def selected(message: bytes, type_: str, key: str, from_ns: int, to_ns: int) -> Found:
    times, values = select(message, type_, key, from_ns, to_ns)
    assert times.typecode == "q"
    return [
        strategies.exact(Point("", "", time, value))
        for time, value in zip(times, values, strict=True)
    ]


@pytest.mark.slow
@given(st.data(), strategies.frames())
def test_any_series_of_any_frame(data: st.DataObject, points: list[Point]) -> None:
    message = encode_frame(points, epoch=1, seq=2)
    moments = st.one_of(
        st.sampled_from([*EVER, *(p.time for p in points), *(p.time + 1 for p in points)]),
        st.integers(*EVER),
    )
    low, high = data.draw(moments), data.draw(moments)
    names = {(p.type, p.key) for p in points} | {("absent", ""), (points[0].type, "absent")}
    for type_, key in names:
        for span in (EVER, (low, high)):
            assert selected(message, type_, key, *span) == picked(points, type_, key, *span)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=9))
def test_each_point_is_found_in_its_own_nanosecond(times: list[int]) -> None:
    """However far its width lets a difference lead, and the bounds just where they are said to be."""
    points = [Point("n", "t", time, i) for i, time in enumerate(times)]
    message = encode_frame(points, epoch=1, seq=2)
    for time in times:
        for span in ((time, time + 1), (time - 1, time), (time + 1, time + 2)):
            assert selected(message, "t", "", *span) == picked(points, "t", "", *span)
    low, high = min(times), max(times)
    for span in ((low, high), (low, high + 1), (low + 1, high + 1)):
        assert selected(message, "t", "", *span) == picked(points, "t", "", *span)


@pytest.mark.parametrize(
    "times",
    [
        *([0, 127, 253], [0, -128, -255], [0, 32767, 65533], [5, 5 - 2**31, 4 - 2**32]),
        *([0, 255, 256], [0, 2**16 + 255, 2**16 + 256], [0, 2**62, 2**62 + 1], [9]),
        # Modulo 2**64 the second is one step on, or back, from the first.
        *([INT64_MAX, INT64_MIN, INT64_MAX], [INT64_MIN, INT64_MAX, INT64_MIN]),
        *([INT64_MAX, INT64_MIN], [INT64_MIN, INT64_MAX]),
    ],
)
def test_the_longest_steps_of_a_width_are_reached(times: list[int]) -> None:
    message = encode_frame([Point("n", "t", time, 1) for time in times], epoch=1, seq=2)
    for time in times:
        assert len(selected(message, "t", "", time, time + 1)) == times.count(time)


@pytest.mark.parametrize("series", [2, 256, 300])
def test_few_series_and_many(series: int) -> None:
    points = [Point("n", f"t{i % series}", NOON + i, i) for i in range(4 * series)]
    message = encode_frame(points, epoch=1, seq=2)
    for type_ in ("t1", f"t{series - 1}"):
        span = (NOON + series, NOON + 3 * series)
        assert len(selected(message, type_, "", *span)) == 2
        assert selected(message, type_, "", *span) == picked(points, type_, "", *span)


def test_a_series_of_several_kinds_is_one() -> None:
    values: list[Value] = [1, 1.5, "x", float("nan"), 2, -0.0, 2.5]
    points = [Point("n", "t", NOON + i, value) for i, value in enumerate(values)]
    points.insert(3, Point("n", "u", NOON + 3, 9))
    message = encode_frame(points, epoch=1, seq=2)
    assert selected(message, "t", "", *EVER) == picked(points, "t", "", *EVER)
    assert len(selected(message, "t", "", *EVER)) == len(values)


@pytest.mark.parametrize("seconds", [1, 1000])
def test_a_frame_of_another_time_or_name_is_left_after_a_glance(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [Point("n", "t", NOON + i * seconds * 10**9, float(i)) for i in range(250)]
    message = encode_frame(points, epoch=1, seq=2)
    day = 86_400 * 10**9

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was proven")

    monkeypatch.setattr("backhaul_codec.wire.select.prove", never)
    after = NOON + 700 * day
    for type_, span in (("t", (0, NOON - 700 * day)), ("t", (after, after + 1)), ("u", EVER)):
        assert selected(message, type_, "", *span) == []
    with pytest.raises(AssertionError, match="proven"):
        select(message, "t", "", NOON, NOON + 1)


def test_only_frames_of_the_node() -> None:
    with pytest.raises(CodecError) as caught:
        select(encode_point(Point("n", "t", NOON, 1), epoch=0, seq=0), "t", "", *EVER)
    assert caught.value.code == "kind"
    with pytest.raises(CodecError) as caught:
        select(encode_frame([Point("n", "t", NOON, 1)], epoch=0, seq=0), "t", "", *EVER, node="m")
    assert caught.value.code == "node"


@given(st.data(), strategies.frames(max_size=8))
def test_nothing_comes_from_what_others_refuse(data: st.DataObject, points: list[Point]) -> None:
    _, body = unseal(encode_frame(points, epoch=1, seq=2))
    message = seal(data.draw(strategies.damaged(body)) or b"\xa0", Kind.FRAME, 1, 2, "none")
    type_, key = points[0].type, points[0].key
    try:
        check(message)
    except CodecError:
        try:
            assert selected(message, type_, key, *EVER) == []
        except CodecError:
            return
    else:
        found = decode(message).points
        assert selected(message, type_, key, *EVER) == picked(found, type_, key, *EVER)
