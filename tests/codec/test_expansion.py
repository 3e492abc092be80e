"""What a message comes to, by a look at its columns: never less than its points do."""

from __future__ import annotations

import pytest

from backhaul_codec import Opaque, Point, Value, check, decode, encode_frame
from backhaul_codec.points import JSON
from backhaul_codec.wire.expansion import ROW_BYTES, expansion_of
from backhaul_codec.wire.messages import frame_layout
from tests.support.bombs import T0_NS, blob_bomb, points_bomb, series_bomb, text_bomb

BOMBS = (points_bomb, text_bomb, blob_bomb, series_bomb)


def test_a_frame_comes_to_its_rows_and_a_copy_of_each_text() -> None:
    values: list[Value] = ["hot", "hot", 1.5, b"ab", Opaque(JSON, b"{}")]
    points = [Point("car", "state", at, value, key="k") for at, value in enumerate(values)]
    found = expansion_of(frame_layout(encode_frame(points, epoch=1, seq=1), "car"))
    names = len("car") + len("state") + len("k")
    assert found == (5, 5 * (ROW_BYTES + names) + 3 + 3 + 2 + 2)


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_frames_that_expand_are_valid_and_are_seen(bomb: object) -> None:
    message = bomb(1)  # type: ignore[operator]
    check(message)
    found = expansion_of(frame_layout(message, None))
    assert found.points == len(decode(message).points)
    assert (found.beyond(len(message)) > 1 << 24) is (bomb is not series_bomb)


@pytest.mark.parametrize("points", [1, 40, 250])
@pytest.mark.parametrize("value", [0.0, 81.5, 7, "on", "x" * 90])
def test_frames_of_an_agents_size_never_do(points: int, value: float | str) -> None:
    many = [
        Point(
            "battery-pack-front", "cell-voltage-average", T0_NS + at * 1_000_000, value, key="left"
        )
        for at in range(points)
    ]
    message = encode_frame(many, epoch=1, seq=1)
    assert expansion_of(frame_layout(message, None)).beyond(len(message)) == 0
