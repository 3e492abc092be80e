"""Frames of sampling passes: what encode_frame writes, faster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Point, decode, encode_bundle, encode_frame
from backhaul_codec.wire.pass_frames import PassFrames

T0_NS = 1_750_000_000_000_000_000
SERIES = (("soc", 2), ("temp", 1))


def points(values: list[list[int]], step_ns: int) -> list[Point]:
    return [
        Point("battery", type_, T0_NS + number * step_ns, readings[number] / 10**decimals)
        for number in range(len(values[0]))
        for (type_, decimals), readings in zip(SERIES, values, strict=True)
    ]


def test_a_frame_of_one_pass_is_the_one_that_encode_frame_writes() -> None:
    values = [[8123], [-57]]
    made = PassFrames("battery", SERIES, 1, 1).message(T0_NS, values, epoch=3, seq=9)
    assert made == encode_frame(points(values, 1), epoch=3, seq=9)


def test_a_bundle_of_one_pass_is_the_one_that_encode_bundle_writes() -> None:
    values = [[8123], [-57]]
    made = PassFrames("battery", SERIES, 1, 1, bundle=True)
    message = made.message(T0_NS, values, epoch=3, seq=9)
    assert message == encode_bundle(points(values, 1), epoch=3, seq=9)
    longer = [[8123, 8100, 1 << 40], [-57, 0, 1]]
    made = PassFrames("battery", SERIES, 3, 5, bundle=True)
    message = made.message(T0_NS, longer, epoch=3, seq=9)
    assert decode(message).points == points(longer, 5)


@pytest.mark.slow
@given(
    st.integers(1, 300).flatmap(
        lambda passes: st.lists(
            st.lists(st.integers(-(10**6), 10**6), min_size=passes, max_size=passes),
            min_size=2,
            max_size=2,
        )
    ),
    st.integers(1, 10**12),
)
def test_a_frame_is_read_as_the_points_that_went_in(values: list[list[int]], step_ns: int) -> None:
    made = PassFrames("battery", SERIES, len(values[0]), step_ns)
    message = decode(made.message(T0_NS, values, epoch=1, seq=2), node="battery")
    assert message.points == points(values, step_ns)
    assert made.points == len(message.points)
    assert (message.epoch, message.seq) == (1, 2)


@pytest.mark.parametrize(
    ("series", "passes", "step_ns"),
    [((), 1, 1), (SERIES, 0, 1), (SERIES, 1 << 18, 1), (SERIES, 1, 0), ((("", 2),) * 257, 1, 1)],
    ids=["no series", "no pass", "too many passes", "no step", "too many series"],
)
def test_what_no_frame_can_be_is_refused(
    series: tuple[tuple[str, int], ...], passes: int, step_ns: int
) -> None:
    with pytest.raises(CodecError):
        PassFrames("battery", series, passes, step_ns)


def test_passes_that_are_not_as_said_are_refused() -> None:
    made = PassFrames("battery", SERIES, 2, 10)
    with pytest.raises(CodecError, match="2 passes"):
        made.message(T0_NS, [[1, 2], [1]], epoch=1, seq=1)
    with pytest.raises(CodecError, match="ns"):
        made.message(5, [[1, 2], [1, 2]], epoch=1, seq=1)


def test_passes_that_no_reader_could_date_are_refused() -> None:
    frames = PassFrames("battery", SERIES, 2, 10)
    last_ns = (1 << 63) - 11
    assert decode(frames.message(last_ns, [[1, 2], [3, 4]], epoch=1, seq=1), node="battery").points
    for t0_ns in (last_ns + 1, 1 << 64):
        with pytest.raises(CodecError, match="int64"):
            frames.message(t0_ns, [[1, 2], [3, 4]], epoch=1, seq=1)
