"""Bundles: points of many nodes in one message, whatever the rules allow, and nothing beside.

Covered: every point comes back bit for bit from all readers of bodies, the newest of each series, bytes that
cannot change unnoticed, and each rule that a bundle has of its own. The rules that it shares with frames are in
test_hostile, its bulk decoding beside that of frames in test_small_frames.
"""

from __future__ import annotations

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
    encode_bundle,
    encode_frame,
    hash_of,
    peek,
)
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.state.merge import Heads
from backhaul_codec.state.newest import newest_of
from backhaul_codec.subjects import BUNDLE_SUBJECT, SubjectError, parse_uplink
from backhaul_codec.wire.addressed import decode_addressed, prove_addressed
from backhaul_codec.wire.envelope import chain, restamp, seal, unseal
from backhaul_codec.wire.frame_fields import POINTS_MAX, Field
from backhaul_codec.wire.retime import retime
from backhaul_codec.wire.split import survey
from tests.support import strategies
from tests.support.alike import outcome
from tests.support.small_bundles import NOON, POINTS, bundles
from tests.support.strategies import exact

PLACE = parse_uplink(f"up.VID-001.{BUNDLE_SUBJECT}")

GOLDEN = (
    "2100070000000900000000000000a70000007269637bae0006011b17979cfe362a0000021a3b9aca0003450001000000"
    "0446000100020103058463736f636573706565646366697863736f63074c01000101000103000004060009a20042ff00"
    "0641000684606060646c6566740858182c7d050300000000000000000000000000000000000000800a81646f70656e0f"
    "846762617474657279636770736367707364646f6f720b460000000001000c8282606368756246000000000100"
)


def body_of(**changes: Any) -> bytes:
    """Return a good bundle's body with some fields replaced, or left out where `...`."""
    _, body = unseal(encode_bundle(POINTS, epoch=7, seq=9))
    good: dict[int, Any] = cbor2.loads(body)
    for name, value in changes.items():
        good[int(name[1:])] = value
        if value is ...:
            del good[int(name[1:])]
    return cbor2.dumps(good)


def sealed(body: bytes, kind: Kind = Kind.BUNDLE) -> bytes:
    return seal(body, kind, 7, 9, "none")


@pytest.mark.slow
@given(bundles(), st.integers(0, 2), st.sampled_from(["none", "deflate"]))
def test_any_points_of_any_nodes(points: list[Point], clock: int, compression: str) -> None:
    message = encode_bundle(
        points,
        epoch=7,
        seq=9,
        clock=clock,
        compression=compression,  # type: ignore[arg-type]
    )
    got, addressed = decode_addressed(PLACE, message)
    assert [exact(point) for point in got.points] == [exact(point) for point in points]
    assert [exact(each.point) for each in addressed] == [exact(point) for point in points]
    assert {each.parent for each in addressed} == {""}
    assert (got.kind, got.epoch, got.seq, got.clock) == (Kind.BUNDLE, 7, 9, clock)
    header, layout = prove_addressed(PLACE, message)
    assert header == check(message) == peek(message)
    assert layout is not None
    assert survey(message).n == layout.n == len(points)


@pytest.mark.slow
@given(bundles())
def test_the_newest_of_each_series_of_each_node(points: list[Point]) -> None:
    heads = Heads()
    for point in points:
        heads.offer("", point)
    merged = sorted((exact(head.to_point(key)) for key, head in heads), key=repr)
    found = newest_of(encode_bundle(points, epoch=1, seq=2))
    assert sorted(map(exact, found), key=repr) == merged


def test_the_newest_in_order_builds_no_other_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_codec.state.newest._winners", None)
    points = [Point(f"n{n}", "t", NOON + i, i + n) for i in range(10) for n in range(30)]
    found = newest_of(encode_bundle(points, epoch=1, seq=2))
    assert [(point.node, point.value) for point in found] == [(f"n{n}", 9 + n) for n in range(30)]


def test_its_bytes_stay_as_they_are() -> None:
    """What stands in the field is read for ever: a change of these bytes is another format."""
    message = seal(body_of(), Kind.BUNDLE, 7, 9, "none")
    assert message.hex() == GOLDEN
    assert decode(message).points == POINTS
    linked = chain(message, epoch=7, seq=9, link=b"before")
    assert hash_of(BUNDLE_SUBJECT, linked).hex() == "979ec5d8bab6"


@pytest.mark.slow
@given(bundles(), st.data())
def test_damage_has_one_code_for_all_readers(points: list[Point], data: st.DataObject) -> None:
    whole = encode_bundle(points, epoch=7, seq=9)
    for message in (data.draw(strategies.damaged(whole)), whole[: data.draw(st.integers(0, 40))]):
        outcome(message)


def test_a_bundle_cut_off_at_any_byte_is_refused() -> None:
    for compression in ("none", "deflate"):
        whole = encode_bundle(POINTS, epoch=7, seq=9, compression=compression)
        for end in range(len(whole)):
            assert outcome(whole[:end]), end


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"_13": "battery"}, "field"),  # NODE, which frames have
        ({"_15": ...}, "field"),
        ({"_15": "battery"}, "field"),
        ({"_15": ["battery"] * 3}, "series"),
        ({"_15": ["battery"] * 5}, "series"),
        ({"_15": []}, "field"),
        ({"_15": ["a", "b", "c", 5]}, "field"),
        ({"_15": ["a", "b", "c", "x" * 256]}, "name"),
        ({"_15": None}, "field"),
        ({"_0": 7}, "column"),
        ({"_0": 0}, "field"),
        ({"_0": POINTS_MAX + 1}, "field"),
        ({"_8": ...}, "series"),
        ({"_8": [812, 125, 5]}, "field"),  # as frames have them
        ({"_8": b""}, "column"),
        ({"_8": bytes(4)}, "column"),
        ({"_8": bytes(9)}, "column"),
        ({"_8": bytes(3 * 16)}, "column"),
        ({"_16": 1}, "field"),
    ],
)
def test_a_rule_broken(changes: dict[str, Any], code: str) -> None:
    assert outcome(sealed(body_of())) == "", "the bundle itself is good"
    assert outcome(sealed(body_of(**changes))) == code


def test_bases_without_a_series_that_has_one_are_refused() -> None:
    _, body = unseal(encode_bundle([Point("a", "t", NOON, "text")], epoch=7, seq=9))
    assert outcome(sealed(cbor2.dumps(cbor2.loads(body) | {8: b""}))) == "series"
    assert outcome(sealed(cbor2.dumps(cbor2.loads(body) | {8: b"\0"}))) == "series"


def test_a_frame_has_no_place_for_nodes_and_a_bundle_none_for_a_frames_fields() -> None:
    assert outcome(sealed(body_of(), Kind.FRAME)) == "field"
    _, frame = unseal(encode_frame(POINTS[:1], epoch=7, seq=9))
    assert outcome(sealed(frame)) == "field"
    with_nodes = cbor2.dumps(cbor2.loads(frame) | {int(Field.NODES): ["battery"]})
    assert outcome(sealed(with_nodes, Kind.FRAME)) == "field"


def test_a_message_on_the_subject_of_another_kind_is_refused() -> None:
    bundle, frame = encode_bundle(POINTS, epoch=7, seq=9), encode_frame(POINTS[:1], epoch=7, seq=9)
    frames = parse_uplink("up.VID-001.f.battery")
    for place, message in ((PLACE, frame), (frames, bundle)):
        with pytest.raises(CodecError) as caught:
            decode_addressed(place, message)
        assert caught.value.code == "subject"


@pytest.mark.parametrize("leaf", ["b.battery", "b.", "n.battery.b", "n.battery.d.0123456789ab"])
def test_no_node_has_a_bundle_of_its_own(leaf: str) -> None:
    with pytest.raises(SubjectError):
        parse_uplink(f"up.VID-001.{leaf}")


def test_uint64_bases_go_round_the_whole_circle() -> None:
    """Bases are modulo 2^64 in as few bytes as hold them all, whatever kinds of series they are of."""
    numbers = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63), 255, 127, -128]
    points = [Point(f"n{at}", "t", NOON, number) for at, number in enumerate(numbers)]
    points += [Point("small", f"t{at}", NOON, at) for at in range(3)]
    assert decode(encode_bundle(points, epoch=7, seq=9)).points == points
    small = [Point("small", f"t{at}", NOON, at - 1) for at in range(3)]
    fields = cbor2.loads(unseal(encode_bundle(small, epoch=7, seq=9))[1])
    assert fields[Field.BASES] == b"\xff\x00\x01"


def test_a_bundle_moved_in_time_or_place_has_the_same_points() -> None:
    message = encode_bundle(POINTS, epoch=7, seq=9)
    moved = retime(message, 5, clock=1)
    assert decode(moved).clock == 1
    assert [point.time - 5 for point in decode(moved).points] == [point.time for point in POINTS]
    again = restamp(message, epoch=8, seq=10)
    assert (peek(again).epoch, decode(again).points) == (8, POINTS)


def test_columns_of_bundles_and_frames_together() -> None:
    bundle = encode_bundle(POINTS, epoch=7, seq=9)
    frame = encode_frame([POINTS[0]], epoch=7, seq=10)
    batch = decode_columns([bundle, frame])
    assert batch.column("node").to_pylist() == [p.node for p in [*POINTS, POINTS[0]]]


def kinds_of(values: list[float]) -> bytes:
    """Return the kinds of a bundle in which each node has one value."""
    points = [Point(f"n{at}", "t", 1, value) for at, value in enumerate(values)]
    message = encode_bundle(points, epoch=7, seq=9)
    assert [exact(point) for point in decode(message).points] == [exact(point) for point in points]
    kinds: bytes = cbor2.loads(unseal(message)[1])[Field.KINDS]
    return kinds


def test_whole_readings_among_decimals_are_of_the_others_kind() -> None:
    """A dictionary knows the kinds of a gateway's series then, and no whole reading breaks its match."""
    assert kinds_of([20.5, 21.0, 30.5, 80.1]) == 4 * bytes([1, 0, 1])
    assert kinds_of([20.5, 21.25, 19.75, 80.0])[2::3] == bytes([2, 2, 2, 0]), (
        "who is whole is alone"
    )
    assert kinds_of([20.5, 21.0]) == bytes([1, 0, 1, 1, 0, 0]), "neither is like most others"


def test_no_series_is_made_wider_for_the_sake_of_others() -> None:
    assert kinds_of([0.5, 0.1, 0.2, 127.0])[9:] == bytes([1, 0, 0])
    large = kinds_of([2.0**53, 0.5, 0.1, 0.2])
    assert large[:3] == bytes([1, 0, 0])
    alone = [Point("a", "t", at, value) for at, value in enumerate((1.0, 100.0))]
    others = [Point(name, "t", 9, 2000.5) for name in "bcd"]
    message = encode_bundle(alone + others, epoch=7, seq=9)
    assert cbor2.loads(unseal(message)[1])[Field.KINDS][:3] == bytes([1, 0, 0]), (
        "its steps fit in a byte as they are"
    )
    assert list(decode(message).points) == alone + others


@given(
    st.lists(
        st.builds(
            lambda number, exponent: number / 10**exponent,
            st.integers(-(2**62), 2**62),
            st.integers(0, 15),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_decimals_of_any_size_come_back_bit_for_bit(values: list[float]) -> None:
    kinds_of(values)
    kinds_of([*values, 0.1, 0.2, 0.3, 4.0, 50.0])
