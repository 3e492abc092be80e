"""Small frames proven together: the same points as one by one, and the same refusals.

Covered: every byte of a frame changed, every field odd, heads longer than they need be, mixes of
whatever the strategies draw, and that good frames are in fact taken together. What one by one
refuses and why is in test_hostile.
"""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import CodecError, Kind, Opaque, Point, encode_frame, encode_point
from backhaul_codec.bulk import column_batch
from backhaul_codec.bulk.columns import Rejected, decode_columns
from backhaul_codec.bulk.small_envelopes import BODY_BYTES_MAX
from backhaul_codec.bulk.small_frames import read_small_frames
from backhaul_codec.bulk.subject_names import NO_NAMES
from backhaul_codec.points import NAME_BYTES_MAX
from backhaul_codec.subjects import frame_subject
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_codec.wire.frame_fields import EXPANDED_BYTES_MAX
from backhaul_codec.wire.pass_frames import PassFrames
from tests.support import alike, strategies
from tests.support.odd_fields import ODD

if TYPE_CHECKING:
    from collections.abc import Sequence

NOON = 1_700_000_000_000_000_000

# Scaled integers of two widths, integers below zero and over int64, float32, float64, a key.
POINTS = [
    Point("car", "soc", NOON, 81.25),
    Point("car", "soc", NOON + 5 * 10**8, 81.5),
    Point("car", "temp", NOON + 5 * 10**8, -20.5),
    Point("car", "temp", NOON + 10**9, 310.0),
    Point("car", "volts", NOON + 10**9, 1.0000001192092896, key="cell 7"),
    Point("car", "amps", NOON + 10**9, 0.1 + 0.2),
    Point("car", "count", NOON + 10**9, 2**63 + 7),
    Point("car", "count", NOON + 10**9, 2**63 + 300),
]


def sealed(body: bytes, seq: int = 1) -> bytes:
    return seal(body or b"\xf6", Kind.FRAME, 1, seq, "none")


def taken(messages: Sequence[bytes], node: str | None = None) -> list[int]:
    """Return which messages are proven together."""
    columns = read_small_frames(messages, [NO_NAMES._replace(node=node)] * len(messages), 1)
    return [] if columns is None else columns.message.tolist()


def fields(**changes: Any) -> dict[int, Any]:
    """Return the map of a good frame with some fields replaced, or left out where `...`."""
    _, body = unseal(encode_frame(POINTS, epoch=1, seq=1))
    changed = cbor2.loads(body) | {int(name[1:]): value for name, value in changes.items()}
    return {key: value for key, value in changed.items() if value is not ...}


def test_a_good_frame_is_taken_whoever_wrote_it() -> None:
    fleet = PassFrames("car", (("soc", 2), ("temp", 1)), 3, 10**9)
    messages = [
        encode_frame(POINTS, epoch=2**32 - 1, seq=2**64 - 1, clock=2),
        fleet.message(NOON, [[8125, 8125, 8126], [-400, 70_000, 5]], epoch=1, seq=7),
        encode_frame(POINTS[:1], epoch=1, seq=8, compression="none"),
        encode_frame([Point("ä", f"t{n}", -n, n) for n in range(64)], epoch=0, seq=0),
    ]
    assert taken(messages) == [0, 1, 2, 3]
    assert alike.decode_both(messages) == []


@pytest.mark.slow
def test_what_is_not_small_and_plain_is_read_alone() -> None:
    messages = [
        encode_frame([Point("car", "t", NOON, "text")], epoch=1, seq=1),
        encode_frame([Point("car", "t", NOON, 1.5, tombstone=1)], epoch=1, seq=1),
        encode_frame([Point("car", "t", NOON, 1.5, origin="hub")], epoch=1, seq=1),
        encode_frame([Point("car", f"t{n}", NOON, n) for n in range(257)], epoch=1, seq=1),
        encode_frame([Point("car", "t", n * n, n) for n in range(BODY_BYTES_MAX)], epoch=1, seq=1),
        encode_point(Point("car", "t", NOON, 1.5), epoch=1, seq=1),
        sealed(cbor2.dumps(fields(_32="a hint"))),
        encode_frame(POINTS, epoch=1, seq=1),
    ]
    assert taken(messages) == [7]
    assert alike.decode_both(messages) == []


@pytest.mark.parametrize(
    "message",
    [
        encode_frame(POINTS, epoch=1, seq=1),
        PassFrames("b", (("soc", 2), ("t", 1)), 2, 1).message(
            NOON, [[1, 2], [3, -99]], epoch=1, seq=1
        ),
    ],
    ids=["encode_frame", "PassFrames"],
)
def test_any_byte_changed_is_refused_or_read_alike(message: bytes) -> None:
    _, body = unseal(message)
    messages = [sealed(changed, seq) for seq, changed in enumerate(alike.changed(body))]
    assert alike.decode_both(messages)
    assert taken(messages)  # times and values, which anybody may change


@pytest.mark.slow
def test_any_field_odd_is_refused_or_read_alike() -> None:
    """Fields 15 to 31 do not exist; 32 is a hint."""
    good = sealed(cbor2.dumps(fields()))
    bodies = [fields(**{f"_{field}": odd}) for field in (*range(17), 31, 32) for odd in ODD]
    columns = fields()[9]
    bodies += [
        fields(
            _9={key: value for key, value in (columns | {column: odd}).items() if value is not ...}
        )
        for column in range(8)
        for odd in ODD
    ]
    messages = [good, *(sealed(cbor2.dumps(body)) for body in bodies), good]
    refused = alike.decode_both(messages)
    assert len(refused) > len(bodies) / 2
    assert {0, len(messages) - 1} <= set(taken(messages))


def test_every_kind_of_series_is_refused_or_read_alike() -> None:
    kinds = [bytes(kind) for kind in product(range(10), range(8), (0, 1, 22, 23, 24, 255))]
    some = {"_0": 1, "_3": b"", "_4": b"\0", "_5": ["t"], "_6": ..., "_8": [5]}
    bodies = [
        fields(**some, _7=kind, _9=columns)
        for kind in kinds
        for columns in ({}, {kind[1]: b"\0" * (8 if kind[1] == 5 else 4)})
    ]
    messages = [sealed(cbor2.dumps(body)) for body in bodies]
    assert 0 < len(messages) - len(alike.decode_both(messages)) < 200


def _long(value: Any, more: int) -> bytes:
    """Return CBOR with every head `more` steps longer than it needs be, up to eight bytes."""
    if isinstance(value, list):
        return _head(4, len(value), more) + b"".join(_long(item, more) for item in value)
    if isinstance(value, dict):
        items = chain.from_iterable(value.items())
        return _head(5, len(value), more) + b"".join(_long(item, more) for item in items)
    if isinstance(value, int):
        return _head(0, value, more) if value >= 0 else _head(1, -1 - value, more)
    data = value.encode() if isinstance(value, str) else value
    return _head(3 if isinstance(value, str) else 2, len(data), more) + data


def _head(major: int, argument: int, more: int) -> bytes:
    for steps, width in enumerate((1, 2, 4, 8)):
        if argument < 256**width and (steps >= more or width == 8):
            return bytes([major << 5 | 24 + steps]) + argument.to_bytes(width, "big")
    raise AssertionError(argument)


def test_heads_may_be_longer_than_they_need_be() -> None:
    messages = [sealed(_long(fields(), more)) for more in range(4)]
    assert taken(messages) == [0, 1, 2, 3]
    assert alike.decode_both([*messages, sealed(cbor2.dumps(fields()))]) == []


def test_texts_of_a_small_frame_are_never_too_many() -> None:
    """Node, type and key of as many points as a small body can have: nobody counts them."""
    assert BODY_BYTES_MAX * 3 * NAME_BYTES_MAX < EXPANDED_BYTES_MAX


def test_a_series_without_points_is_refused() -> None:
    """Its columns are as long as they must be: nothing is there, and nothing has to be."""
    empty = {"_0": 1, "_3": b"", "_4": b"\0", "_5": ["t", "u"], "_6": ..., "_8": [5]}
    body = fields(**empty, _7=b"\1\0\0\1\4\0", _9={})
    assert [bad.code for bad in alike.decode_both([sealed(cbor2.dumps(body))])] == ["series"]


def with_last(field: int, item: bytes) -> bytes:
    """Return a good frame's message whose last field is this one, with the item for its value."""
    rest = cbor2.dumps(fields(**{f"_{field}": ...}))
    return sealed(bytes([rest[0] + 1]) + rest[1:] + bytes([field]) + item)


def test_a_field_said_twice_is_refused() -> None:
    body = cbor2.dumps(fields())
    assert body[0] == 0xAB
    for again in (b"\x00\x08", b"\x18\x00\x08", b"\x0d\x63car"):
        assert [bad.code for bad in alike.decode_both([sealed(b"\xac" + body[1:] + again)])] == [
            "cbor"
        ]


def test_a_column_said_twice_is_refused() -> None:
    columns = cbor2.dumps(fields()[9])
    assert alike.decode_both([with_last(9, columns)]) == []
    again = bytes([columns[0] + 1]) + columns[1:] + cbor2.dumps(5) + cbor2.dumps(fields()[9][5])
    assert [bad.code for bad in alike.decode_both([with_last(9, again)])] == ["cbor"]


@pytest.mark.parametrize("field", sorted(fields()))
def test_a_length_past_the_end_is_refused(field: int) -> None:
    """The body ends where the field would if its length were true."""
    item = cbor2.dumps(fields()[field])
    assert alike.decode_both([with_last(field, item)]) == []
    longer = bytes([item[0] + 1]) + item[1:]
    if item[0] >> 5 >= 2:
        assert [bad.code for bad in alike.decode_both([with_last(field, longer)])] == ["cbor"]
    if field == 9:  # the map is as it was, what it ends with is longer
        last = len(fields()[9][5])
        column = item[: -last - 1] + bytes([0x40 | last + 1]) + item[-last:]
        assert [bad.code for bad in alike.decode_both([with_last(field, column)])] == ["cbor"]


def test_texts_that_are_no_utf8_are_refused() -> None:
    good = cbor2.dumps(fields())
    for name in (b"soc", b"cell 7", b"car"):
        assert good.count(name) == 1
        messages = [sealed(good), sealed(good.replace(name, b"\xff" + name[1:])), sealed(good)]
        assert [(bad.index, bad.code) for bad in alike.decode_both(messages)] == [(1, "cbor")]


def test_an_envelope_that_lies_is_refused() -> None:
    messages = []
    for compression in ("none", "deflate"):
        good = encode_frame(POINTS, epoch=1, seq=1, compression=compression)
        messages += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))]
        messages += [good[:at] for at in range(len(good))] + [good + b"\0", good]
    refused = alike.decode_both(messages)
    # Epoch and seq may be any.
    assert len(messages) - len(refused) == 2 * (1 + 12)


def test_a_frame_must_be_of_the_node_of_its_subject() -> None:
    frame = encode_frame(POINTS, epoch=1, seq=1)
    other = encode_frame([Point("n", "t", NOON, 1.5)], epoch=1, seq=2)
    point = encode_point(Point("", "", NOON, 1.5), epoch=1, seq=3)
    subjects = {
        "up.V.f.car": "",
        "f.car": "",
        "up.V.p.car": "",
        "up.W.n.car.f.car": "",
        "up.V.f.n": "node",
        "f.%C3%A4": "node",
        "up.V.p.fleet.car": "",
        "up.V.p.fleet.n": "node",
        "up.V.p.car.soc.%": "subject",
        "up.V.e.mark": "subject",
        "up.V.x.car": "subject",
        "up..f.car": "subject",
        "up.a b.f.car": "subject",
        "up.V": "subject",
        "up": "subject",
        "up.V.up.V.f.car": "subject",
        "up.V.": "subject",
        "": "subject",
        "x.V.f.car": "subject",
    }
    refused = alike.decode_both([frame] * len(subjects), list(subjects))
    codes = {bad.index: bad.code for bad in refused}
    assert [codes.get(index, "") for index in range(len(subjects))] == list(subjects.values())
    # And with others between: each message keeps its own subject.
    refused = alike.decode_both(
        [other, frame, point, frame] * 2, ["f.n", "f.car", "e.x", "f.n", *["f.car"] * 4]
    )
    assert [bad.index for bad in refused] == [3, 4, 6]
    assert taken([frame, other, frame], "car") == [0, 2]


def test_rows_and_refusals_are_in_the_order_of_the_messages() -> None:
    """Large, text and point messages are read alone, between those that are read together."""
    small = encode_frame(POINTS[:2], epoch=1, seq=1)
    text = encode_frame([Point("car", "note", NOON, "hi")], epoch=1, seq=2)
    json = encode_point(Point("", "", NOON, Opaque(6, b"{}")), epoch=1, seq=3)
    messages = [small, b"short", text, small[:-1], json, small, b"", text + b"\0", small]
    rejected: list[Rejected] = []
    batch = decode_columns(messages, rejected=rejected, together_min=1)
    assert batch.column("message").to_pylist() == [0, 0, 2, 4, 5, 5, 8, 8]
    assert [bad.index for bad in rejected] == [1, 3, 6, 7]
    with pytest.raises(CodecError) as caught:
        decode_columns(messages, subjects=["f.car"] * 8 + ["x"], together_min=1)
    assert (caught.value.index, caught.value.code) == (1, "short")
    alike.decode_both(messages)


def test_a_batch_past_what_arrow_counts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of message would fit alone."""
    monkeypatch.setattr(column_batch, "TEXT_BYTES_MAX", 99)
    small = encode_frame([Point("n" * 50, "t", NOON, 1.5)], epoch=0, seq=0)
    text = encode_frame([Point("n" * 50, "t", NOON, "x")], epoch=0, seq=0)
    for message in (small, text):
        assert decode_columns([message], together_min=1).num_rows == 1
    with pytest.raises(CodecError, match="fewer messages"):
        decode_columns([small, text], together_min=1)


numeric = st.one_of(
    strategies.readings, strategies.decimals, strategies.floats, strategies.integers
)


@st.composite
def numeric_frames(draw: st.DrawFn) -> list[Point]:
    """Draw the points of a frame without texts, tombstones and origins."""
    node = draw(st.sampled_from(["car", "gps", ""]))
    series = draw(st.lists(st.tuples(strategies.names, strategies.names), min_size=1, max_size=4))
    return [
        Point(node, type_, draw(strategies.times), draw(numeric), key)
        for type_, key in draw(st.lists(st.sampled_from(series), min_size=1, max_size=12))
    ]


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.one_of(numeric_frames(), strategies.frames(max_size=8)), min_size=1, max_size=8))
def test_any_mix_of_frames_is_read_alike(drawn: list[list[Point]]) -> None:
    messages = [encode_frame(points, epoch=1, seq=seq) for seq, points in enumerate(drawn)]
    subjects = [f"up.V.{frame_subject(points[0].node)}" for points in drawn]
    assert alike.decode_both(messages, subjects) == []


@settings(max_examples=30)
@given(st.data(), st.lists(numeric_frames(), min_size=1, max_size=4))
def test_damage_in_any_mix_is_refused_alike(data: st.DataObject, drawn: list[list[Point]]) -> None:
    messages = [encode_frame(points, epoch=1, seq=seq) for seq, points in enumerate(drawn)]
    damaged = [sealed(data.draw(strategies.damaged(unseal(each)[1]))) for each in messages]
    alike.decode_both(messages + damaged)
