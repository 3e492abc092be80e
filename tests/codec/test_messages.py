"""The public face: what goes in comes out, and what may not go in is refused."""

import math
import pickle
import struct

import pytest

from backhaul_codec import (
    CodecError,
    Header,
    Kind,
    Message,
    Opaque,
    Point,
    Value,
    check,
    decode,
    encode_frame,
    encode_point,
    peek,
    restamp,
)

NOON = 1_700_000_000_000_000_000


def points_of(*values: Value, node: str = "battery", type: str = "soc") -> list[Point]:
    return [Point(node, type, NOON + i * 10**9, value) for i, value in enumerate(values)]


def double(bits: int) -> float:
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_a_frame_comes_back_whole() -> None:
    points = [
        Point("battery", "soc", NOON, 81.2),
        Point("battery", "cell", NOON, 3.987, key="7"),
        Point("battery", "cycles", NOON, 412, origin="hub"),
        Point("battery", "serial", NOON + 5, "Ä-42", tombstone=1),
        Point("battery", "blob", NOON - 5, b"\x00\xff"),
        Point("battery", "settings", NOON, Opaque(6, b'{"a": 1}')),
        Point("battery", "proto", NOON, Opaque(7, b"\x08\x01")),
        Point("battery", "counter", NOON, 2**64 - 1),
        Point("battery", "soc", NOON + 10**9, 81.3),
    ]
    message = encode_frame(points, epoch=3, seq=17, clock=1)
    assert decode(message) == Message(Kind.FRAME, 3, 17, points, 1)
    assert decode(message, node="battery").points == points


def test_a_point_comes_back_whole() -> None:
    point = Point("motor", "limit", NOON, 120, key="left", tombstone=2, origin="hub")
    message = encode_point(point, epoch=1, seq=2)
    decoded = decode(message, node="motor", type="limit", key="left")
    assert decoded == Message(Kind.POINT, 1, 2, [point])


@pytest.mark.parametrize(
    "value",
    [
        *(0.0, -0.0, 0.1 + 0.2, 1e300, 5e-324, math.inf, -math.inf, 81.2, -1e-7, 1.5, 1e22),
        pytest.param(double(0x7FF0000000000001), id="signalling NaN"),
        pytest.param(double(0xFFF80000DEADBEEF), id="NaN with a payload"),
    ],
)
def test_floats_keep_every_bit(value: float) -> None:
    for values in ([value], [21.5, value, 22.5], [0.1 + 0.2, value]):
        frame = decode(encode_frame(points_of(*values), epoch=0, seq=0))
        assert [bits(float(p.value)) for p in frame.points] == [bits(v) for v in values]  # type: ignore[arg-type]
    point = decode(encode_point(points_of(value)[0], epoch=0, seq=0)).points[0]
    assert isinstance(point.value, float)
    assert bits(point.value) == bits(value)


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, "", "ž\U0001f697", b"", b"x" * 2**20),
        *(Opaque(6, b"[]"), Opaque(7, b""), Opaque(255, b"\x80")),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_values_keep_value_and_type(value: Value) -> None:
    frame = decode(encode_frame(points_of(value, 1, value), epoch=0, seq=0))
    point = decode(encode_point(points_of(value)[0], epoch=0, seq=0))
    for got in (frame.points[0].value, frame.points[2].value, point.points[0].value):
        assert got == value
        assert type(got) is type(value)


@pytest.mark.parametrize(
    "bad",
    [
        *(True, None, 2**64, -(2**63) - 1, "\ud800", b"x" * (2**20 + 1), [1.0]),
        *(Opaque(5, b""), Opaque(256, b""), Opaque(6, b"\xff"), Opaque(8, None)),  # type: ignore[arg-type]
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_value_that_is_none_is_refused(bad: Value) -> None:
    with pytest.raises(CodecError) as in_frame:
        encode_frame(points_of(1.5, bad), epoch=0, seq=0)
    with pytest.raises(CodecError) as alone:
        encode_point(points_of(bad)[0], epoch=0, seq=0)
    assert (in_frame.value.code, alone.value.code) == ("value", "value")


@pytest.mark.parametrize(
    ("point", "code"),
    [
        (Point("n", "t", 2**63, 1.0), "time"),
        (Point("n", "t", 1.5, 1.0), "time"),  # type: ignore[arg-type]
        (Point("n", "t", 0, 1.0, tombstone=256), "tombstone"),
        (Point("n", "t", 0, 1.0, key=None), "name"),  # type: ignore[arg-type]
        (Point("n", "t" * 256, 0, 1.0), "name"),
        (Point("n", "t", 0, 1.0, origin="\udfff"), "name"),
        (Point("n", ["t"], 0, 1.0), "name"),  # type: ignore[arg-type]
    ],
)
def test_a_point_outside_the_rules_is_refused(point: Point, code: str) -> None:
    with pytest.raises(CodecError) as in_frame:
        encode_frame([point], epoch=0, seq=0)
    with pytest.raises(CodecError) as alone:
        encode_point(point, epoch=0, seq=0)
    assert (in_frame.value.code, alone.value.code) == (code, code)


def test_a_frame_holds_one_node_and_some_points() -> None:
    with pytest.raises(CodecError, match="one node"):
        encode_frame([Point("a", "t", 0, 1.0), Point("b", "t", 0, 1.0)], epoch=0, seq=0)
    with pytest.raises(CodecError, match="1 to"):
        encode_frame([], epoch=0, seq=0)


def test_a_frame_on_another_nodes_subject_is_refused() -> None:
    message = encode_frame(points_of(1.5), epoch=0, seq=1)
    with pytest.raises(CodecError, match="motor") as caught:
        decode(message, node="motor")
    assert caught.value.code == "node"
    with pytest.raises(CodecError, match="motor"):
        check(message, node="motor")


def test_peek_and_check_return_the_header() -> None:
    message = encode_frame(points_of(1.5, 2.5), epoch=7, seq=2**40)
    header = peek(message)
    assert header == check(message)
    assert header == Header(Kind.FRAME, 7, 2**40, header.raw_len)


def test_restamp_changes_the_header_alone() -> None:
    message = encode_frame(points_of(1.5, 2.5), epoch=7, seq=9)
    again = restamp(message, epoch=8, seq=1)
    assert decode(again) == Message(Kind.FRAME, 8, 1, points_of(1.5, 2.5))
    assert restamp(again, epoch=7, seq=9) == message
    with pytest.raises(CodecError):
        restamp(message, epoch=2**32, seq=0)


def test_numbers_of_other_libraries_become_plain_ones() -> None:
    class Percent(float):
        pass

    class Count(int):
        pass

    got = decode(encode_frame(points_of(Percent(1.5), Count(3)), epoch=0, seq=0))
    assert [type(point.value) for point in got.points] == [float, int]


def test_the_error_survives_another_process() -> None:
    error = pickle.loads(pickle.dumps(CodecError("why", "code", 3)))
    assert (error.reason, error.code, error.index, str(error)) == (
        "why",
        "code",
        3,
        "message 3: why",
    )
