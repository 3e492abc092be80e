"""Bytes from anybody: one CodecError with the reason, nothing else, and little memory.

Covered: random bytes, damage, truncation, every rule of docs/wire-format.md broken alone, and
bombs (lengths, items, depth, tags, deflate, repeated texts). Not covered: memory of cbor2 itself
beyond what tracemalloc sees, and time (the limits are on bytes and items, not on seconds).
"""

from __future__ import annotations

import struct
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import (
    CodecError,
    Kind,
    Point,
    check,
    decode,
    encode_frame,
    peek,
    restamp,
)
from backhaul_codec.wire.envelope import unseal
from backhaul_codec.wire.point_body import write_point
from tests.codec.hostile_bodies import MIB, NOON, POINTS, fields, sealed
from tests.support import strategies
from tests.support.alike import outcome


def test_the_good_frame_is_good() -> None:
    assert outcome(sealed(cbor2.dumps(fields()))) == ""
    assert set(fields()) == set(range(14))


@given(st.binary(max_size=200))
def test_random_bytes(message: bytes) -> None:
    for read in (decode, check, peek):
        with pytest.raises(CodecError):
            read(message)
    with pytest.raises(CodecError):
        restamp(message, epoch=1, seq=1)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(Kind))
def test_random_bodies(body: bytes, kind: Kind) -> None:
    outcome(sealed(body, kind))


@pytest.mark.slow
@given(st.data(), st.sampled_from(Kind))
def test_random_cbor(data: st.DataObject, kind: Kind) -> None:
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**64), 2**64 - 1),
        st.floats(),
        st.binary(),
        st.text(),
    )
    items = st.recursive(
        leaves,
        lambda inner: st.lists(inner) | st.dictionaries(st.integers(0, 40), inner),
        max_leaves=8,
    )
    if kind is Kind.FRAME and data.draw(st.booleans()):
        changed = data.draw(st.dictionaries(st.integers(0, 40), items, min_size=1, max_size=2))
        outcome(sealed(cbor2.dumps(fields() | changed)))
    else:
        outcome(sealed(cbor2.dumps(data.draw(items)), kind))


@given(st.data(), strategies.frames(max_size=5))
def test_damaged_messages(data: st.DataObject, points: list[Point]) -> None:
    outcome(data.draw(strategies.damaged(encode_frame(points, epoch=1, seq=1))))


@given(st.data(), strategies.points())
def test_damaged_points(data: st.DataObject, point: Point) -> None:
    outcome(sealed(data.draw(strategies.damaged(write_point(point))) or b"\x00", Kind.POINT))


@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_truncation_at_every_byte(compression: Any) -> None:
    message = encode_frame(POINTS, epoch=1, seq=1, compression=compression)
    for length in range(len(message)):
        assert outcome(message[:length])
    assert outcome(message) == ""
    assert outcome(message + b"\x00") in ("trailing", "length")
    _, body = unseal(message)
    for length in range(1, len(body)):
        assert outcome(sealed(body[:length])) == "cbor"
    assert outcome(sealed(body + b"\x00")) == "trailing"


@pytest.mark.parametrize(
    ("offset", "put", "code"),
    [
        (0, b"\x03", "version"),
        (0, b"\x00", "version"),
        (0, b"\x41", "kind"),
        (0, b"\xf1", "kind"),
        (1, b"\x03", "dictionary"),
        (1, b"\x04", "codec"),
        (1, b"\xff", "codec"),
        (14, struct.pack("<I", 0), "size"),
        (14, struct.pack("<I", 16 * MIB + 1), "size"),
        (14, struct.pack("<I", 2**32 - 1), "size"),
        (14, struct.pack("<I", 1), "length"),
        (14, struct.pack("<I", 16 * MIB), "length"),
        (18, b"\x00\x00\x00\x00", "crc"),
    ],
)
def test_each_field_of_the_header(offset: int, put: bytes, code: str) -> None:
    message = encode_frame(POINTS, epoch=1, seq=1)
    assert outcome(message[:offset] + put + message[offset + len(put) :]) == code


TWO = bytes([0, 1])
RULES: list[tuple[str, dict[str, Any], str]] = [
    ("n too small", {"_0": 0}, "field"),
    ("n too large", {"_0": 2**18 + 1}, "field"),
    ("n not the points", {"_0": 8}, "column"),
    ("n is true", {"_0": True}, "field"),
    ("n is a float", {"_0": 9.0}, "field"),
    ("no n", {"_0": ...}, "field"),
    ("time past int64", {"_1": 2**63}, "time"),
    ("no time", {"_1": ...}, "time"),
    ("unit 0", {"_2": 0}, "field"),
    ("no unit", {"_2": ...}, "field"),
    ("dt short", {"_3": b"\x00" * 7}, "column"),
    ("dt of three bytes", {"_3": b"\x00" * 24}, "column"),
    ("dt tagged", {"_3": cbor2.CBORTag(72, b"\x00" * 8)}, "field"),
    ("dt absent", {"_3": ...}, "field"),
    ("sid short", {"_4": b"\x00" * 8}, "column"),
    ("sid of four bytes", {"_4": b"\x00" * 36}, "column"),
    ("sid past the series", {"_4": bytes([9] * 9)}, "series"),
    ("sid leaves a series empty", {"_4": bytes(9)}, "series"),
    ("types not a list", {"_5": "soc"}, "field"),
    ("types with bytes", {"_5": [b"soc"] * 7}, "field"),
    ("no types", {"_5": []}, "field"),
    ("a type too few", {"_5": ["t"] * 6}, "series"),
    ("a type too long", {"_5": ["t" * 256] * 7}, "name"),
    ("a type too long in bytes", {"_5": ["€" * 86] * 7}, "name"),
    ("keys too few", {"_6": [""] * 6}, "series"),
    ("keys null", {"_6": None}, "field"),
    ("kinds short", {"_7": bytes([1, 0, 0]) * 6}, "series"),
    ("dtype 0", {"_7": bytes([0, 0, 0]) * 7}, "series"),
    ("column 7", {"_7": bytes([1, 7, 0]) * 7}, "series"),
    ("exponent 23", {"_7": bytes([1, 0, 23]) * 7}, "series"),
    ("an integer in a float column", {"_7": bytes([2, 4, 0]) * 7}, "series"),
    ("text in an integer column", {"_7": bytes([4, 0, 0]) * 7}, "series"),
    ("bases absent", {"_8": ...}, "series"),
    ("bases too many", {"_8": [1, 2, 3]}, "series"),
    ("a base past int64", {"_8": [2**63, 2**63]}, "field"),
    ("a negative base of uint64", {"_8": [1, -1]}, "field"),
    ("a base that is a float", {"_8": [1.0, 1]}, "field"),
    ("columns absent", {"_9": ...}, "field"),
    ("columns a list", {"_9": []}, "field"),
    ("blobs absent", {"_10": ...}, "column"),
    ("blobs too few", {"_10": ["a", "b"]}, "column"),
    ("bytes where text belongs", {"_10": [b"a", "b", b"c"]}, "column"),
    ("text where bytes belong", {"_10": ["a", "b", "c"]}, "column"),
    ("a number as a blob", {"_10": ["a", "b", 3]}, "field"),
    ("a blob too long", {"_10": ["a", "x" * (MIB + 1), b"c"]}, "value"),
    ("tomb short", {"_11": b"\x00" * 8}, "column"),
    ("origin not a pair", {"_12": [["a"]]}, "field"),
    ("origin past the names", {"_12": [["a"], bytes([1] * 9)]}, "column"),
    ("origin without names", {"_12": [[], bytes(9)]}, "field"),
    ("node absent", {"_13": ...}, "name"),
    ("node not text", {"_13": b"n"}, "name"),
    ("clock 3", {"_14": 3}, "field"),
    ("clock null", {"_14": None}, "field"),
]


@pytest.mark.parametrize(
    ("changes", "code"), [rule[1:] for rule in RULES], ids=[r[0] for r in RULES]
)
def test_each_rule_of_a_frame(changes: dict[str, Any], code: str) -> None:
    assert outcome(sealed(cbor2.dumps(fields(**changes)))) == code


@pytest.mark.parametrize("base", [2**63, -(2**63) - 1])
def test_a_base_outside_int64_is_refused_without_uint64_series_too(base: int) -> None:
    _, body = unseal(encode_frame(POINTS[:2], epoch=1, seq=1))
    assert outcome(sealed(cbor2.dumps(cbor2.loads(body) | {8: [base]}))) == "field"


def test_columns_must_be_just_what_the_series_need() -> None:
    columns = fields()[9]
    for column, data in columns.items():
        without = {other: value for other, value in columns.items() if other != column}
        assert outcome(sealed(cbor2.dumps(fields(_9=without)))) == "column"
        for wrong in (data + b"\x00", data[:-1], data * 2):
            assert outcome(sealed(cbor2.dumps(fields(_9=columns | {column: wrong})))) == "column"
    for unknown in (7, -1, 2**63, "0", 0.0, True):
        changed = columns | {unknown: b""} if unknown not in columns else {unknown: b""}
        assert outcome(sealed(cbor2.dumps(fields(_9=changed)))) == "column"


@pytest.mark.parametrize("key", [15, 31, -1, -(2**64), "a", b"b", 1.5, None, (1,)])
def test_unknown_keys_are_refused(key: Any) -> None:
    assert outcome(sealed(cbor2.dumps(fields() | {key: 1}))) == "field"


@pytest.mark.parametrize("key", [32, 2**64 - 1])
def test_keys_from_32_on_are_ignored(key: int) -> None:
    message = sealed(cbor2.dumps(fields() | {key: {"new": [1, None, {"deep": 2.5}]}}))
    assert outcome(message) == ""
    assert decode(message).points == POINTS


def test_a_key_said_twice_is_refused() -> None:
    body = cbor2.dumps(fields())
    assert body[0] == 0xA0 | 14
    assert outcome(sealed(b"\xaf" + body[1:] + b"\x00\x09")) == "cbor"


@pytest.mark.parametrize(
    "item",
    [
        *(1, "text", [], {}, [1], [NOON], [NOON, 1, 0, "", 0], [2**63, 1], [1.5, 1], [None, 1]),
        *(
            [0, None],
            [0, True],
            [0, 2**64],
            [0, [6, b"{}"]],
            [0, [7]],
            [0, [256, b""]],
            [0, [7, "a"]],
        ),
        *(
            [0, cbor2.CBORTag(262, b"\xff")],
            [0, cbor2.CBORTag(262, "{}")],
            [0, cbor2.CBORTag(1, 0)],
        ),
        *([0, 1, -1], [0, 1, 256], [0, 1, 1.0], [0, 1, 0, 1], [0, 1, 0, "o" * 256], [0, {}]),
        [0, b"x" * (MIB + 1)],
    ],
    ids=lambda item: repr(item)[:60],
)
def test_each_rule_of_a_point(item: Any) -> None:
    assert outcome(sealed(cbor2.dumps(item), Kind.POINT)) in {
        *("point", "time", "value", "tombstone", "name")
    }


def test_a_point_may_write_its_floats_short() -> None:
    """Other languages write 1.5 in half precision: it is the same number."""
    for body in (b"\x82\x00\xf9\x3e\x00", b"\x82\x00\xfa\x3f\xc0\x00\x00"):
        assert decode(sealed(body, Kind.POINT)).points[0].value == 1.5
