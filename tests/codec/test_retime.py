"""Shifting the times of written messages: the same as decoding, shifting and encoding again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cbor2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Kind, Point, check, decode, encode_frame, encode_point, peek
from backhaul_codec.points import INT64_MAX, INT64_MIN
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_codec.wire.retime import retime
from tests.support import strategies

if TYPE_CHECKING:
    from random import Random

NOON = 1_700_000_000_000_000_000
YEAR = 31_536_000_000_000_000
clocks = st.integers(0, 2)
offsets = st.one_of(
    st.integers(-10 * YEAR, 10 * YEAR),
    st.integers(-(2**64), 2**64),
    st.sampled_from([0, 1, -1]),
)


def shifted(points: list[Point], offset: int) -> list[Point]:
    return [replace(point, time=point.time + offset) for point in points]


def fits(points: list[Point], offset: int) -> bool:
    return all(INT64_MIN <= point.time + offset <= INT64_MAX for point in points)


def assert_refused(message: bytes, offset: int) -> None:
    with pytest.raises(CodecError) as caught:
        retime(message, offset, clock=0)
    assert caught.value.code == "time"


@pytest.mark.slow
@given(strategies.frames(), offsets, clocks, clocks, st.sampled_from(["none", "deflate"]))
def test_a_frame_is_as_if_written_with_other_times(
    points: list[Point], offset: int, before: int, after: int, compression: str
) -> None:
    message = encode_frame(points, epoch=3, seq=4, clock=before, compression=compression)  # type: ignore[arg-type]
    if not fits(points, offset):
        assert_refused(message, offset)
        return
    found = retime(message, offset, clock=after)
    expected = encode_frame(
        shifted(points, offset),
        epoch=3,
        seq=4,
        clock=after,
        compression=compression,  # type: ignore[arg-type]
    )
    assert found == expected


@pytest.mark.slow
@given(strategies.frames(), clocks)
def test_what_a_frame_says_of_the_clock_may_stay(points: list[Point], clock: int) -> None:
    message = encode_frame(points, epoch=3, seq=4, clock=clock)
    assert retime(message, 0) == message


@given(strategies.points("n"), offsets, clocks)
def test_a_point_is_as_if_written_with_another_time(point: Point, offset: int, clock: int) -> None:
    message = encode_point(point, epoch=3, seq=4)
    if not fits([point], offset):
        assert_refused(message, offset)
        return
    assert retime(message, offset, clock=clock) == encode_point(
        shifted([point], offset)[0], epoch=3, seq=4
    )


@given(strategies.frames(max_size=5), offsets, clocks, st.randoms(use_true_random=False))
def test_another_writers_frame_keeps_what_we_do_not_know(
    points: list[Point], offset: int, clock: int, random: Random
) -> None:
    """Fields in another order, hints of a later version among them, and clock 0 said aloud."""
    assume(fits(points, offset))
    _, body = unseal(encode_frame(points, epoch=0, seq=0))
    fields = [*cbor2.loads(body).items(), (14, 0), (40, [1, {"a": [b"x", 1.5]}]), (999, None)]
    random.shuffle(fields)
    fields += [(1000 + number, "") for number in range(20)]  # more than one byte counts
    message = seal(cbor2.dumps(dict(fields)), Kind.FRAME, 1, 2, "deflate")
    found = retime(message, offset, clock=clock)
    back = decode(found)
    expected = decode(encode_frame(shifted(points, offset), epoch=1, seq=2, clock=clock))
    assert [*map(strategies.exact, back.points)] == [*map(strategies.exact, expected.points)]
    assert (back.clock, back.epoch, back.seq) == (clock, 1, 2)
    _, after = unseal(found)
    kept = cbor2.loads(after)
    assert (kept[40], kept[999]) == ([1, {"a": [b"x", 1.5]}], None)
    check(found)


def test_a_time_that_wraps_inside_a_frame_is_seen() -> None:
    """t0 alone would fit; a later time would not, and modulo 2**64 it would be long ago."""
    points = [Point("n", "t", time, 1.0) for time in (NOON, INT64_MAX - 5, NOON)]
    message = encode_frame(points, epoch=0, seq=0)
    assert decode(retime(message, 5, clock=0)).points[1].time == INT64_MAX
    assert_refused(message, 6)
    assert_refused(message, -(2**63) - NOON - 1)


def test_no_column_is_read_where_no_time_can_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [Point("n", "t", NOON + i * i * 1_000_000, i / 10) for i in range(250)]
    message = encode_frame(points, epoch=1, seq=2)
    monkeypatch.setattr("backhaul_codec.wire.retime.read_layout", None)
    assert decode(retime(message, YEAR, clock=1)).points == shifted(points, YEAR)


@given(st.data(), strategies.frames(max_size=5))
def test_damage_ends_in_one_error(data: st.DataObject, points: list[Point]) -> None:
    """And what comes out of damage is refused by readers if what went in was."""
    _, body = unseal(encode_frame(points, epoch=1, seq=2))
    message = seal(data.draw(strategies.damaged(body)) or b"\xa0", Kind.FRAME, 1, 2, "none")
    try:
        found = retime(message, 1, clock=0)
    except CodecError:
        return
    assert peek(found).seq == 2
    try:
        check(message)
    except CodecError:
        with pytest.raises(CodecError):
            check(found)


@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        b"\xa0",
        b"\xa1\x01",
        b"\xa1\x61a\x01",
        b"\xbf\xff",
        cbor2.dumps({0: 1, 1: 1, 2: 1}),
        cbor2.dumps({0: 1, 1: 1, 2: 1, 3: b""}) + b"\x00",
        cbor2.dumps({0: 1, 1: "noon", 2: 1, 3: b""}),
        cbor2.dumps({0: 2, 1: 1, 2: 1, 3: bytes(1 << 20)}),
        b"\xbb" + b"\xff" * 8 + b"\x01\x01",
    ],
)
def test_what_is_no_frame_is_refused(body: bytes) -> None:
    with pytest.raises(CodecError):
        retime(seal(body, Kind.FRAME, 1, 2, "none"), 0, clock=0)


def test_a_clock_that_is_none_is_refused() -> None:
    with pytest.raises(CodecError, match="clock"):
        retime(encode_point(Point("n", "t", NOON, 1), epoch=0, seq=0), 0, clock=3)
