"""Single points proven together: the same points as one by one, and the same refusals.

Covered: every byte of a point changed, every part odd, and mixes of whatever the strategies draw. What
one by one refuses and why is in test_hostile.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import Kind, Opaque, Point, encode_frame, encode_point
from backhaul_codec.bulk.columns import Rejected, decode_columns
from backhaul_codec.bulk.small_points import read_small_points
from backhaul_codec.bulk.subject_names import NO_NAMES
from backhaul_codec.subjects import edge_subject, point_subject
from backhaul_codec.wire.envelope import seal, unseal
from tests.support import alike, strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_codec import Value

NOON = 1_700_000_000_000_000_000


def sealed(body: bytes) -> bytes:
    return seal(body or b"\xf6", Kind.POINT, 1, 1, "none")


def message(value: Value, time: int = NOON, **more: Any) -> bytes:
    return encode_point(Point("", "", time, value, **more), epoch=3, seq=2**64 - 1)


def taken(messages: Sequence[bytes]) -> list[int]:
    """Return which messages are proven together."""
    return read_small_points(messages, [NO_NAMES] * len(messages), 1).proven


PLAIN: list[Value] = [
    *(1.5, -0.0, float("inf"), strategies.double(0x7FF0_0000_0000_0001), 5e-324),
    *(0, 23, 24, -1, -25, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *("", "Ä", "x" * 300, b"", b"\xff\x00", Opaque(6, b'{"a":"\xc3\xa4"}')),
]


def test_a_plain_point_is_taken() -> None:
    messages = [message(value, time) for value in PLAIN for time in (NOON, -(2**63), 2**63 - 1, 0)]
    assert taken(messages) == list(range(len(messages)))
    assert alike.decode_both(messages) == []


def test_what_is_not_plain_is_read_alone() -> None:
    messages = [
        message(1.5, tombstone=1),
        message(1.5, origin="hub"),
        message(Opaque(7, b"protobuf")),
        message("x" * 70_000),
        sealed(b"\x82\x00\xf9\x3c\x00"),  # a float of two bytes
        encode_frame([Point("car", "t", NOON, 1.5)], epoch=1, seq=1),
        message(1.5),
    ]
    assert taken(messages) == [6]
    assert alike.decode_both(messages) == []


def test_any_byte_changed_is_refused_or_read_alike() -> None:
    bodies = [
        unseal(message(value))[1] for value in (1.5, 300, -300, 2**63, "soc", Opaque(6, b"{}"))
    ]
    messages = [sealed(changed) for body in bodies for changed in alike.changed(body)]
    assert alike.decode_both(messages)
    assert taken(messages)


@pytest.mark.slow
def test_any_part_odd_is_refused_or_read_alike() -> None:
    odd: list[Any] = [
        *(
            None,
            True,
            1.5,
            0,
            -1,
            2**63 - 1,
            2**63,
            2**64 - 1,
            2**64,
            -(2**63),
            -(2**63) - 1,
            "",
            "x",
        ),
        *(
            b"",
            b"\xff",
            [],
            [7, b"x"],
            [6, b"{}"],
            [7, "x"],
            [1, 2, 3],
            {},
            cbor2.CBORTag(262, b"{}"),
        ),
        *(cbor2.CBORTag(262, b"\xff"), cbor2.CBORTag(262, "x"), cbor2.CBORTag(262, 1)),
        *(cbor2.CBORTag(262, [b"x"]), cbor2.CBORTag(261, b"x"), cbor2.CBORTag(6, b"x")),
    ]
    bodies: list[Any] = [*odd, *([one] for one in odd), *map(list, product(odd, odd))]
    bodies += [[NOON, value, other] for value in odd for other in odd]
    messages = [sealed(cbor2.dumps(body)) for body in bodies]
    refused = alike.decode_both(messages)
    assert len(bodies) / 2 < len(refused) < len(bodies)


def test_a_length_past_the_end_is_refused() -> None:
    for body in (
        b"\x82\x00\x42x",
        b"\x82\x00\x62x",
        b"\x82\x00\xd9\x01\x06\x42x",
        b"\x82\x00\xfb\x00",
    ):
        assert [bad.code for bad in alike.decode_both([sealed(body)])] == ["cbor"]


def test_subjects_name_the_points() -> None:
    subjects = {
        **dict.fromkeys(
            ["up.V.p.gps.fix.a", "up.W.p.gps.fix.a", edge_subject("car", "gps", "mass")], ""
        ),
        **dict.fromkeys(["up.V.e.boot", "e.app.door", "r.42", "up.V.n.gps.p.gps.fix.a"], ""),
        **dict.fromkeys(["up.V.f.gps", "f.gps", "p.gps", "x", "up.V", "up.a b.e.boot"], "subject"),
    }
    refused = alike.decode_both([message(1.5)] * len(subjects), list(subjects))
    codes = {bad.index: bad.code for bad in refused}
    assert [codes.get(index, "") for index in range(len(subjects))] == list(subjects.values())


def test_system_events_are_proven_and_give_no_row() -> None:
    event = message(Opaque(6, b"{}"))
    rejected: list[Rejected] = []
    batch = decode_columns(
        [event] * 3 + [event[:-1], sealed(b"\x82\x00\xf6")],
        subjects=["e.heads", "up.V.e.boot", "up.V.n.gps.e.mark", "e.heads", "e.mark"],
        rejected=rejected,
        together_min=1,
    )
    assert [(row["message"], row["type"]) for row in batch.to_pylist()] == [(1, "boot")]
    assert [(bad.index, bad.code) for bad in rejected] == [(3, "length"), (4, "value")]
    assert decode_columns([event], subjects=["e.mark"], together_min=1).num_rows == 0


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(
        st.one_of(strategies.points(), strategies.frames(max_size=4)), min_size=1, max_size=10
    ),
    st.data(),
)
def test_any_mix_of_messages_is_read_alike(
    drawn: list[Point | list[Point]], data: st.DataObject
) -> None:
    messages, subjects = [], []
    for what in drawn:
        if isinstance(what, Point):
            messages.append(encode_point(what, epoch=1, seq=1))
            subjects.append(point_subject(what.node, what.type, what.key))
        else:
            messages.append(encode_frame(what, epoch=1, seq=1))
            subjects.append("up.V.f.%")
    at = data.draw(st.integers(0, len(messages) - 1))
    header, body = unseal(messages[at])
    damaged = data.draw(strategies.damaged(body)) or b"\0"
    messages.append(seal(damaged, header.kind, 1, 1, "none"))
    alike.decode_both(messages, [*subjects, subjects[at]])
    alike.decode_both(messages)


def test_packed_points_are_read_as_those_that_are_not() -> None:
    """A vehicle deflates its newest values; some of them alone, and many together."""
    text = Opaque(6, b'{"points":[' + b",".join([b'["sensor","t","",1,2.5]'] * 40) + b"]}")
    plain = message(text)
    packed = encode_point(Point("", "", NOON, text), epoch=3, seq=2**64 - 1, compression="deflate")
    assert len(packed) < len(plain) / 4
    for count in (1, 100):
        of_packed, of_plain = (decode_columns([each] * count) for each in (packed, plain))
        assert of_packed.num_rows == count
        assert of_packed == of_plain
