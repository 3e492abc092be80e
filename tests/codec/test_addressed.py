"""Messages on their subjects: what the body must be, and whose points are in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Point, check, encode_frame, encode_point
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.subjects import edge_frame_subject, node_frame_subject, parse_leaf
from backhaul_codec.wire.addressed import (
    Addressed,
    check_addressed,
    decode_addressed,
    edge_frame_points,
)
from tests.support import strategies

NOON = 1_700_000_000_000_000_000
ROLE = Point("gps", "nodeType", NOON, "sensor")
NAME = Point("gps", "name", NOON, "roof", key="en")


def test_an_edge_and_its_new_node_come_in_one_frame() -> None:
    points = edge_frame_points([ROLE], [NAME])
    assert [point.type for point in points] == ["nodeType", "node:name"]
    body = encode_frame(points, epoch=1, seq=1)
    place = parse_leaf(edge_frame_subject("car", "gps"))
    assert check_addressed(place, body) == check(body)
    message, addressed = decode_addressed(place, body)
    assert (message.epoch, message.seq) == (1, 1)
    assert addressed == [Addressed("car", ROLE), Addressed("", NAME)]
    rows = decode_columns([body], subjects=["up.V.p.car.gps"]).to_pylist()
    named = [(row["node"], row["type"], row["key"]) for row in rows]
    assert named == [("car>gps", "nodeType", ""), ("gps", "name", "en")]


@given(strategies.frames())
def test_a_nodes_frame_gives_its_points_back(points: list[Point]) -> None:
    """In a frame of the node itself the prefix means nothing."""
    points.append(Point(points[0].node, "node:x", NOON, 1))
    place = parse_leaf(node_frame_subject(points[0].node))
    _, addressed = decode_addressed(place, encode_frame(points, epoch=0, seq=0))
    assert [addressed.parent for addressed in addressed] == [""] * len(points)
    assert [strategies.exact(p.point) for p in addressed] == [strategies.exact(p) for p in points]


@given(
    strategies.points("low").filter(lambda point: not point.type.startswith("node:")),
    strategies.points("low").filter(lambda point: len(point.type.encode()) < 250),
    st.booleans(),
)
def test_rows_and_points_of_an_edge_say_the_same(edge: Point, own: Point, mixed: bool) -> None:
    points = edge_frame_points([edge], [own, own])
    body = encode_frame(points, epoch=0, seq=0)
    _, addressed = decode_addressed(parse_leaf("p.up.low"), body)
    expected = [(f"{parent}>low" if parent else "low", point.type) for parent, point in addressed]
    assert expected == [("up>low", edge.type), ("low", own.type), ("low", own.type)]
    # Beside a frame without an edge, whose series all have one node.
    plain = [encode_frame([own], epoch=0, seq=0)] if mixed else []
    batch = decode_columns([*plain, body], subjects=["f.low"] * mixed + ["p.up.low"])
    rows = [(row["node"], row["type"]) for row in batch.to_pylist()]
    assert rows == [("low", own.type)] * mixed + expected


def test_a_single_point_of_an_edge_keeps_its_parent() -> None:
    body = encode_point(ROLE, epoch=1, seq=1)
    _, addressed = decode_addressed(parse_leaf("p.car.gps.nodeType.%"), body)
    assert addressed == [Addressed("car", ROLE)]
    _, addressed = decode_addressed(parse_leaf("p.gps.nodeType.%"), body)
    assert addressed == [Addressed("", ROLE)]
    _, [event] = decode_addressed(parse_leaf("e.boot"), body)
    assert (event.point.node, event.point.type) == ("", "boot")


@pytest.mark.parametrize(
    ("leaf", "code"),
    [("p.gps.name.%", "subject"), ("e.boot", "subject"), ("p.imu", "node"), ("p.gps.imu", "node")],
)
def test_a_frame_elsewhere_is_refused(leaf: str, code: str) -> None:
    body = encode_frame([NAME], epoch=1, seq=1)
    for read in (check_addressed, decode_addressed):
        with pytest.raises(CodecError) as caught:
            read(parse_leaf(leaf), body)
        assert caught.value.code == code


@pytest.mark.parametrize("leaf", ["f.gps", "p.gps", "p.car.gps"])
def test_a_point_where_frames_go_is_refused(leaf: str) -> None:
    body = encode_point(NAME, epoch=1, seq=1)
    for read in (check_addressed, decode_addressed):
        with pytest.raises(CodecError) as caught:
            read(parse_leaf(leaf), body)
        assert caught.value.code == "subject"


def test_an_edges_point_cannot_pass_for_its_nodes() -> None:
    with pytest.raises(CodecError, match="must not start"):
        edge_frame_points([Point("gps", "node:name", NOON, 1)])
