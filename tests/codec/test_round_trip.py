"""Whatever the rules allow comes back bit for bit, through frames and through points."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Point, Value, check, decode, encode_frame, encode_point, peek
from backhaul_codec.wire.point_body import encode_value
from tests.support import strategies
from tests.support.strategies import exact

NOON = 1_700_000_000_000_000_000
epochs = st.integers(0, 2**32 - 1)
seqs = st.integers(0, 2**64 - 1)


@given(strategies.frames(), st.integers(0, 2), st.sampled_from(["none", "deflate"]), epochs, seqs)
def test_frames(points: list[Point], clock: int, compression: str, epoch: int, seq: int) -> None:
    message = encode_frame(
        points,
        epoch=epoch,
        seq=seq,
        clock=clock,
        compression=compression,  # type: ignore[arg-type]
    )
    got = decode(message, node=points[0].node)
    assert [exact(point) for point in got.points] == [exact(point) for point in points]
    assert (got.epoch, got.seq, got.clock) == (epoch, seq, clock)
    assert check(message, node=points[0].node) == peek(message)


@given(strategies.points(), epochs, seqs)
def test_points(point: Point, epoch: int, seq: int) -> None:
    message = encode_point(point, epoch=epoch, seq=seq)
    got = decode(message, node=point.node, type=point.type, key=point.key)
    assert [exact(one) for one in got.points] == [exact(point)]
    assert check(message) == peek(message)


@given(st.lists(strategies.floats, min_size=1, max_size=50))
@example([0.1 + 0.2, 1e300, -0.0])
@example([2.0**62, -(2.0**62), 0.5])
@example([9007199254740993.0, 0.1])
def test_one_series_of_floats(values: list[float]) -> None:
    points = [Point("n", "t", NOON + i, value) for i, value in enumerate(values)]
    got = decode(encode_frame(points, epoch=0, seq=0)).points
    assert [exact(point) for point in got] == [exact(point) for point in points]


@given(st.lists(st.one_of(strategies.integers, strategies.integers), min_size=1, max_size=50))
def test_one_series_of_integers(values: list[int]) -> None:
    points = [Point("n", "t", 0, value) for value in values]
    got = decode(encode_frame(points, epoch=0, seq=0)).points
    assert [point.value for point in got] == values


@given(st.lists(strategies.times, min_size=1, max_size=50))
@example([-(2**63), 2**63 - 1, -(2**63)])
@example([0, 2**62, -(2**62), 0])
def test_any_times(times: list[int]) -> None:
    points = [Point("n", "t", time, 1) for time in times]
    got = decode(encode_frame(points, epoch=0, seq=0)).points
    assert [point.time for point in got] == times


@given(strategies.frames(max_size=5))
def test_encoding_is_repeatable(points: list[Point]) -> None:
    """A ledger row encoded twice is the same row: repeats compare equal by their bytes."""
    first = encode_frame(points, epoch=1, seq=1)
    assert encode_frame(points, epoch=1, seq=1) == first
    assert encode_frame(decode(first).points, epoch=1, seq=1) == first


@given(strategies.values, strategies.values)
def test_values_differ_where_their_bytes_do(one: Value, other: Value) -> None:
    """The merge breaks ties by encoded value: two values may share bytes only if they are equal."""
    same = exact(Point("", "", 0, one)) == exact(Point("", "", 0, other))
    assert (encode_value(one) == encode_value(other)) == same


@pytest.mark.parametrize("size", [2**20 - 1, 2**20])
def test_a_megabyte(size: int) -> None:
    value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    point = Point("camera", "image", NOON, value)
    assert decode(encode_frame([point] * 3, epoch=0, seq=0)).points == [point] * 3
    assert decode(encode_point(point, epoch=0, seq=0), node="camera", type="image").points == [
        point
    ]


@pytest.mark.slow
def test_as_many_points_and_series_as_there_may_be() -> None:
    many = [Point("n", "t", i, i % 7) for i in range(2**18)]
    assert decode(encode_frame(many, epoch=0, seq=0)).points == many
    with pytest.raises(CodecError) as caught:
        encode_frame([*many, many[0]], epoch=0, seq=0)
    assert caught.value.code == "points"
    series = [Point("n", "t", 0, 1.5, key=str(i)) for i in range(2**16)]
    assert decode(encode_frame(series, epoch=0, seq=0)).points == series
    with pytest.raises(CodecError) as caught:
        encode_frame([*series, Point("n", "u", 0, 1.5)], epoch=0, seq=0)
    assert caught.value.code == "series"


def test_a_frame_too_large_to_send_is_refused() -> None:
    body = [Point("n", "t", i, bytes([i]) * 2**20) for i in range(17)]
    with pytest.raises(CodecError, match="fewer") as caught:
        encode_frame(body, epoch=0, seq=0)
    assert caught.value.code == "size"
    same = [Point("n", "t", i, "x" * 2**20) for i in range(65)]
    with pytest.raises(CodecError, match="fewer") as caught:
        encode_frame(same, epoch=0, seq=0)
    assert caught.value.code == "size"
    assert len(decode(encode_frame(same[:63], epoch=0, seq=0)).points) == 63
