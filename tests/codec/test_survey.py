"""A frame's survey says what decoding it would, and refuses what decoding would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Point, decode, encode_frame, encode_point
from backhaul_codec.wire.split import survey
from tests.support import strategies


@given(
    st.lists(strategies.points("a"), min_size=1, max_size=40),
    st.sampled_from(["none", "deflate"]),
)
def test_it_says_what_decoding_would(points: list[Point], compression: str) -> None:
    data = encode_frame(points, epoch=7, seq=9, compression=compression)  # type: ignore[arg-type]
    times = [point.time for point in decode(data).points]
    found = survey(data, node="a")
    assert (found.n, found.t_lo, found.t_hi) == (len(points), min(times), max(times))
    assert (found.header.epoch, found.header.seq) == (7, 9)


def test_a_point_is_no_frame() -> None:
    with pytest.raises(CodecError) as caught:
        survey(encode_point(Point("a", "t", 1, 2.0), epoch=0, seq=0))
    assert caught.value.code == "kind"


def test_a_frame_of_another_node_is_refused() -> None:
    with pytest.raises(CodecError) as caught:
        survey(encode_frame([Point("a", "t", 1, 2.0)], epoch=0, seq=0), node="b")
    assert caught.value.code == "node"
