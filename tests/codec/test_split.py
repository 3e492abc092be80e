"""Frames that are larger than an agent writes come apart, and nothing of them is lost."""

from __future__ import annotations

import pytest

from backhaul_codec import Opaque, Point, Value, decode, encode_frame
from backhaul_codec.wire import split as split_module
from backhaul_codec.wire.expansion import FRAME_EXPANDED_MAX, FRAME_POINTS_MAX, expansion_of
from backhaul_codec.wire.messages import frame_layout
from backhaul_codec.wire.split import split_frame
from tests.support.bombs import points_bomb, series_bomb, text_bomb


@pytest.mark.slow
@pytest.mark.parametrize("message", [points_bomb(1, points=87_000), text_bomb(1), series_bomb(1)])
def test_the_pieces_are_within_what_an_agent_writes(message: bytes) -> None:
    pieces = split_frame(message)
    found = [expansion_of(frame_layout(piece.body, "battery")) for piece in pieces]
    assert max(each.points for each in found) <= FRAME_POINTS_MAX
    assert max(each.size for each in found) <= FRAME_EXPANDED_MAX
    points = [point for piece in pieces for point in decode(piece.body).points]
    assert points == decode(message).points


def test_a_piece_says_when_its_points_were_and_of_the_clock_what_the_whole_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_module, "FRAME_POINTS_MAX", 3)
    values: list[Value] = ["a", b"b", Opaque(6, b"{}"), 1.5, 7, -0.0, "\N{SNOWMAN}"]
    points = [Point("car", "t", 10 - at, v, "k", at % 2, "o") for at, v in enumerate(values)]
    pieces = split_frame(encode_frame(points, epoch=4, seq=4, clock=2, compression="none"))
    assert [piece.times for piece in pieces] == [(8, 10), (5, 7), (4, 4)]
    found = [decode(piece.body) for piece in pieces]
    assert [(each.epoch, each.seq, each.clock) for each in found] == [(0, 0, 2)] * 3
    assert [repr(point) for each in found for point in each.points] == list(map(repr, points))


def test_a_value_that_alone_comes_to_more_stays_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "FRAME_EXPANDED_MAX", 100)
    points = [Point("car", "t", at, "x" * 200) for at in range(3)]
    assert len(split_frame(encode_frame(points, epoch=0, seq=0))) == 3
