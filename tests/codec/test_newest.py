"""The newest of each series: what merging all points of the frame comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Kind, Point, check, decode, encode_frame, encode_point
from backhaul_codec.state.merge import Heads
from backhaul_codec.state.newest import newest_of, newest_time
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_codec.wire.messages import frame_layout
from tests.support import strategies
from tests.support.bombs import points_bomb, text_bomb

NOON = 1_700_000_000_000_000_000


def merged(points: list[Point]) -> list[tuple[object, ...]]:
    heads = Heads()
    for point in points:
        heads.offer("", point)
    return sorted((strategies.exact(head.to_point(key)) for key, head in heads), key=repr)


def assert_newest(points: list[Point]) -> None:
    found = newest_of(encode_frame(points, epoch=1, seq=2), node=points[0].node)
    assert sorted(map(strategies.exact, found), key=repr) == merged(points)
    layout = frame_layout(encode_frame(points, epoch=1, seq=2), None)
    assert newest_time(layout) == max(point.time for point in points)


@given(strategies.frames())
def test_any_frame(points: list[Point]) -> None:
    assert_newest(points)


@pytest.mark.slow
@given(strategies.frames(), st.booleans())
def test_a_frame_in_order(points: list[Point], apart: bool) -> None:
    """As vehicles write them: in order of time, each with its own or several with the same."""
    ordered = [
        Point(p.node, p.type, NOON + (i if apart else i // 3) * 1000, p.value, p.key, 0, p.origin)
        for i, p in enumerate(points)
    ]
    assert_newest(ordered)


@pytest.mark.slow
@given(strategies.frames())
def test_series_in_order_each_for_itself(points: list[Point]) -> None:
    """Programs with delays of their own: no series goes back in time, the frame does."""
    delays = {name: i * 5 for i, name in enumerate(dict.fromkeys((p.type, p.key) for p in points))}
    assert_newest(
        [
            Point(p.node, p.type, NOON + i - delays[p.type, p.key], p.value, p.key, 0, p.origin)
            for i, p in enumerate(points)
        ]
    )


@pytest.mark.parametrize("series", [1, 64, 65, 257, 300])
def test_few_series_and_many(series: int) -> None:
    assert_newest(
        [Point("n", f"t{i % series}", NOON + i, i, key=str(i % series)) for i in range(3 * series)]
    )


def test_no_points_are_built_for_an_ordinary_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_codec.state.newest._winners", None)
    sampled = [Point("n", f"t{s}", NOON + i, i / 10) for i in range(60) for s in range(4)]
    delayed = [Point("n", f"t{s}", NOON + i - s, i / 10) for i in range(60) for s in range(4)]
    for points in (sampled, delayed):
        found = newest_of(encode_frame(points, epoch=1, seq=2))
        assert [point.value for point in found] == [5.9] * 4


@pytest.mark.slow
@pytest.mark.parametrize("message", [points_bomb(1), text_bomb(1)])
def test_of_a_frame_whose_points_are_all_as_new_one_is_built(
    message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = merged(decode(message).points)
    built: list[Point] = []

    def build(*of: Any) -> Point:
        built.append(Point(*of))
        return built[-1]

    monkeypatch.setattr("backhaul_codec.state.newest.Point", build)
    assert list(map(strategies.exact, newest_of(message))) == expected
    assert len(built) == 1


def test_a_time_that_wraps_is_not_the_newest() -> None:
    """Each step leads on, and modulo 2**64 the last time is long ago."""
    points = [Point("n", "t", time, time) for time in (2**62, 2**63 - 2, -(2**62))]
    message = encode_frame(points, epoch=0, seq=0)
    assert newest_time(frame_layout(message, None)) == 2**63 - 2
    assert [point.value for point in newest_of(message)] == [2**63 - 2]


def test_only_frames_of_the_node() -> None:
    with pytest.raises(CodecError) as caught:
        newest_of(encode_point(Point("n", "t", NOON, 1), epoch=0, seq=0))
    assert caught.value.code == "kind"
    with pytest.raises(CodecError) as caught:
        newest_of(encode_frame([Point("n", "t", NOON, 1)], epoch=0, seq=0), node="m")
    assert caught.value.code == "node"


@given(st.data(), strategies.frames(max_size=8))
def test_what_others_refuse_is_refused(data: st.DataObject, points: list[Point]) -> None:
    _, body = unseal(encode_frame(points, epoch=1, seq=2))
    message = seal(data.draw(strategies.damaged(body)) or b"\xa0", Kind.FRAME, 1, 2, "none")
    codes = set()
    for read in (check, newest_of):
        try:
            read(message)
        except CodecError as error:
            codes.add(error.code)
    assert len(codes) < 2
    if codes:
        with pytest.raises(CodecError):
            newest_of(message)
    else:
        assert sorted(map(strategies.exact, newest_of(message)), key=repr) == merged(
            decode(message).points
        )
