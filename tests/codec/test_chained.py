"""Messages of version 2: what is chained comes back, with its neighbours of version 1 and among them.

Covered: every field at its ends, both versions decoded together and one by one, each byte of a header
changed, and what a hash stands for. What bodies are refused for is in test_hostile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import (
    CodecError,
    Kind,
    Point,
    chain,
    check,
    decode,
    encode_frame,
    encode_point,
    hash_of,
    peek,
    restamp,
)
from backhaul_codec.wire.envelope import (
    BODY_BYTES_MAX,
    CHAINED_BYTES,
    CHAINED_SEQ_MAX,
    HASH_BYTES,
    HEADER_BYTES,
    NO_LINK,
    seal,
    unseal,
)
from tests.support import alike, strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

NOON = 1_700_000_000_000_000_000
EPOCHS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**32 - 1]))
SEQS = st.one_of(
    st.integers(0, CHAINED_SEQ_MAX), st.sampled_from([0, 1, 2**32 - 1, 2**32, CHAINED_SEQ_MAX])
)
LINKS = st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES)
FRAME = encode_frame([Point("car", "soc", NOON, 81.5)], epoch=1, seq=1)


def small(number: int, version: int) -> bytes:
    """Return a small frame of either version."""
    points = [Point("car", "soc", NOON + number, 80 + number / 10), Point("car", "n", NOON, number)]
    message = encode_frame(points, epoch=3, seq=number + 1)
    if version == 1:
        return message
    return chain(message, epoch=3, seq=number + 1, link=bytes([number % 256]) * HASH_BYTES)


@given(
    st.binary(min_size=1, max_size=300),
    st.sampled_from(Kind),
    st.sampled_from(["none", "deflate"]),
    EPOCHS,
    SEQS,
    LINKS,
)
def test_what_is_chained_comes_back(
    body: bytes, kind: Kind, codec: str, epoch: int, seq: int, link: bytes
) -> None:
    before = seal(body, kind, 9, 9, codec)
    message = chain(before, epoch=epoch, seq=seq, link=link)
    assert peek(message) == (kind, epoch, seq, len(body), link)
    assert unseal(message) == (peek(message), body)
    assert len(message) == len(before) + CHAINED_BYTES - HEADER_BYTES == len(before) + 2
    again = restamp(message, epoch=9, seq=9)
    assert again == before
    assert peek(again).link == b""
    assert chain(message, epoch=epoch, seq=seq, link=link) == message


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, 65_537, BODY_BYTES_MAX])
def test_every_size_of_a_body_fits_the_narrower_field(size: int) -> None:
    body = bytes(size)
    message = chain(seal(body, Kind.FRAME, 1, 1, "deflate"), epoch=1, seq=1, link=NO_LINK)
    header, found = unseal(message)
    assert (header.raw_len, found) == (size, body)


@pytest.mark.parametrize(("epoch", "seq"), [(1, CHAINED_SEQ_MAX + 1), (1, -1), (2**32, 1), (-1, 1)])
def test_a_place_that_does_not_fit_is_refused(epoch: int, seq: int) -> None:
    with pytest.raises(CodecError) as refused:
        chain(FRAME, epoch=epoch, seq=seq, link=NO_LINK)
    assert refused.value.code == "stamp"


@pytest.mark.parametrize("size", [0, HASH_BYTES - 1, HASH_BYTES + 1])
def test_a_link_of_another_length_is_refused(size: int) -> None:
    """Padded or cut it would be another hash, and the lane would be forked by its own writer."""
    with pytest.raises(CodecError) as refused:
        chain(FRAME, epoch=1, seq=1, link=bytes(size))
    assert refused.value.code == "stamp"


@pytest.mark.slow
@given(strategies.frames())
def test_points_are_the_same_in_both_versions(points: Sequence[Point]) -> None:
    one = encode_frame(points, epoch=1, seq=1)
    two = chain(one, epoch=1, seq=1, link=b"linked")
    assert list(map(strategies.exact, decode(two).points)) == list(
        map(strategies.exact, decode(one).points)
    )
    assert alike.decode_both([one, two, one]) == []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 2), st.booleans()), min_size=1, max_size=90))
def test_versions_mixed_are_decoded_together_as_one_by_one(draws: list[tuple[int, bool]]) -> None:
    messages, damaged = [], []
    for number, (version, whole) in enumerate(draws):
        message = small(number, version)
        if not whole:
            message = message[:-1] + bytes([message[-1] ^ 1])
            damaged.append(number)
        messages.append(message)
    assert [refused.index for refused in alike.decode_both(messages)] == damaged


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 2), strategies.values), min_size=1, max_size=80))
def test_points_of_both_versions_are_decoded_together(draws: list[tuple[int, object]]) -> None:
    messages = []
    for number, (version, value) in enumerate(draws):
        message = encode_point(Point("car", "t", NOON, value), epoch=3, seq=number + 1)  # type: ignore[arg-type]
        if version == 2:
            message = chain(message, epoch=3, seq=number + 1, link=b"linked")
        messages.append(message)
    assert alike.decode_both(messages, subjects=["p.car.t.%"] * len(messages)) == []


def test_every_byte_of_a_header_changed_is_refused_alike_or_changes_nothing_but_the_place() -> None:
    message = small(7, 2)
    head, payload = message[:CHAINED_BYTES], message[CHAINED_BYTES:]
    hostile = [changed + payload for changed in alike.changed(head)]
    hostile += [message[:size] for size in range(len(message))]
    good = decode(message).points
    refused = {rejected.index for rejected in alike.decode_both(hostile)}
    assert refused
    assert all(decode(each).points == good for at, each in enumerate(hostile) if at not in refused)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (small(1, 2)[:CHAINED_BYTES], "short"),
        (b"\x03" + small(1, 2)[1:], "version"),
        (b"\x42" + small(1, 2)[1:], "kind"),
        (small(1, 2)[:1] + b"\x04" + small(1, 2)[2:], "codec"),
    ],
)
def test_a_header_of_version_2_that_says_nonsense_is_refused(message: bytes, code: str) -> None:
    for read in (peek, unseal, check):
        with pytest.raises(CodecError) as refused:
            read(message)
        assert refused.value.code == code


@given(st.lists(st.integers(1, 2), min_size=2, max_size=6), st.integers(0, 10_000))
def test_a_hash_stands_for_all_that_came_before(versions: list[int], at: int) -> None:
    def last(changed: int | None) -> bytes:
        link = NO_LINK
        for number in range(len(versions)):
            body = b"\xf6" if number == changed else b"\xf5"
            message = chain(
                seal(body, Kind.POINT, 1, 1, "none"), epoch=1, seq=number + 1, link=link
            )
            link = hash_of("e.mark", message)
        return link

    assert last(None) == last(None)
    assert last(at % len(versions)) != last(None)


def test_a_hash_is_of_the_subject_too() -> None:
    assert len(hash_of("f.car", FRAME)) == HASH_BYTES
    assert hash_of("f.car", FRAME) != hash_of("f.cab", FRAME)
    assert hash_of("f.ca", b"r" + FRAME) != hash_of("f.car", FRAME)
    assert hash_of("n.car.f.car", FRAME) != hash_of("f.car", FRAME)
