"""Dictionaries: what is packed against one comes back, and nothing but what was packed.

Covered: round trips, what stays readable without the dictionary, bytes that stand in the field, damage, and bombs.
How a hub keeps dictionaries is in tests/hub/test_dictionaries.py.
"""

from __future__ import annotations

import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import (
    CodecError,
    Kind,
    Point,
    chain,
    check,
    decode,
    encode_bundle,
    encode_frame,
    encode_point,
    hash_of,
    peek,
    restamp,
)
from backhaul_codec.subjects import SubjectError, dictionary_subject, parse_uplink
from backhaul_codec.wire.compression import DICTIONARY
from backhaul_codec.wire.dictionaries import (
    DICTIONARY_BYTES_MAX,
    DIGEST_BYTES,
    digest_in,
    digest_of,
    encode_dictionary,
    pack_with,
    plain,
    read_dictionary,
)
from backhaul_codec.wire.envelope import CODEC_OFFSET, HEADER_BYTES, seal, unseal
from tests.support import strategies
from tests.support.alike import outcome
from tests.support.small_bundles import NOON, POINTS, bundles

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
BODY = unseal(encode_bundle(POINTS[:2], epoch=7, seq=8))[1]
DIGEST = bytes.fromhex("244a27c577e1")
# As zlib 1.3 packed it. Others may pack it otherwise: what was packed so is read for ever.
PACKED = bytes.fromhex(
    "2103070000000900000000000000a70000007269637b244a27c577e15bc7c086a45fca7ad62906665706460606061637"
    "20053491b5056156725a660588c7ee03319319a88c8d81731183d37f06364706b696848484949cd4b4128e08099d5a56"
    "a0340668e06a4cc92f48cde36f41760608a7a4e4e71771bb81143132f03435252467942641b900"
)


def known(*some: bytes) -> Callable[[bytes], bytes | None]:
    return {digest_of(each): each for each in some}.get


def code_of(read: Callable[[], object]) -> str:
    with pytest.raises(CodecError) as caught:
        read()
    return caught.value.code


def packed_by_hand(
    body: bytes, dictionary: bytes, *, raw_len: int | None = None, tail: bytes = b""
) -> bytes:
    """Return a message packed against a dictionary, whatever its body is."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=dictionary)
    head = bytearray(seal(body, Kind.BUNDLE, 7, 9, "none")[:HEADER_BYTES])
    head[CODEC_OFFSET] = DICTIONARY
    if raw_len is not None:
        head[14:18] = raw_len.to_bytes(4, "little")
    payload = digest_of(dictionary) + squeezer.compress(body) + squeezer.flush() + tail
    return bytes(head) + payload


@pytest.mark.slow
@given(bundles(), st.binary(min_size=1, max_size=DICTIONARY_BYTES_MAX), st.booleans())
def test_what_was_packed_comes_back(points: list[Point], dictionary: bytes, alike: bool) -> None:
    message = encode_bundle(points, epoch=7, seq=9)
    if alike:
        dictionary = unseal(message)[1][:DICTIONARY_BYTES_MAX]
    packed = pack_with(message, dictionary)
    assert len(packed) <= len(message)
    assert peek(packed) == peek(message)
    readable = plain(packed, known(dictionary))
    assert unseal(readable) == unseal(message)
    assert digest_in(readable) is None
    if packed is not message:
        assert digest_in(packed) == digest_of(dictionary)


@pytest.mark.parametrize("version", [1, 2])
def test_a_packed_message_is_placed_without_its_dictionary(version: int) -> None:
    message = encode_bundle(POINTS, epoch=7, seq=9)
    if version == 2:
        message = chain(message, epoch=7, seq=9, link=b"before")
    packed = pack_with(message, BODY)
    assert packed != message
    assert peek(packed) == peek(message)
    assert hash_of("b", packed) != hash_of("b", message), "the chain is over the bytes as sent"
    moved = chain(packed, epoch=8, seq=1, link=b"sixsix")
    assert (peek(moved).seq, peek(moved).link) == (1, b"sixsix")
    assert decode(plain(moved, known(BODY))).points == POINTS
    assert peek(restamp(packed, epoch=8, seq=10)).seq == 10


def test_a_message_without_one_is_given_back_as_it_is() -> None:
    for message in (
        encode_bundle(POINTS, epoch=7, seq=9),
        encode_frame(POINTS[:1], epoch=7, seq=9),
        encode_point(POINTS[0], epoch=7, seq=9),
    ):
        assert plain(message, known()) is message
        assert digest_in(message) is None
    assert pack_with(encode_point(POINTS[0], epoch=7, seq=9), BODY)[CODEC_OFFSET] != DICTIONARY


def test_frames_and_points_may_be_packed_too() -> None:
    message = encode_frame([Point("n", "t", NOON, "long text " * 20)], epoch=7, seq=9)
    packed = pack_with(message, unseal(message)[1])
    assert digest_in(packed)
    assert decode(plain(packed, known(unseal(message)[1]))) == decode(message)


def test_bytes_that_stand_in_the_field() -> None:
    assert digest_of(BODY) == DIGEST
    assert digest_in(PACKED) == DIGEST
    assert decode(plain(PACKED, known(BODY))).points == POINTS
    sent = encode_dictionary(BODY)
    assert sent[:2] == b"\x31\x01"
    assert read_dictionary(sent, DIGEST) == BODY
    assert dictionary_subject(DIGEST) == "d.244a27c577e1"


def test_whoever_lacks_the_dictionary_says_so() -> None:
    packed = pack_with(encode_bundle(POINTS, epoch=7, seq=9), BODY)
    assert code_of(lambda: plain(packed, known())) == "dictionary"
    assert code_of(lambda: plain(packed, known(b"another"))) == "dictionary"
    assert outcome(packed) == "dictionary"


def test_another_dictionary_of_that_digest_is_found_out() -> None:
    """Two of 2^48 have one digest; bytes that were damaged where they were kept are more likely."""
    packed = pack_with(encode_bundle(POINTS, epoch=7, seq=9), BODY)
    other = bytes([BODY[0] ^ 1]) + BODY[1:-1] + bytes([BODY[-1] ^ 1])
    refused = code_of(lambda: decode(plain(packed, lambda _: other)))
    assert refused in ("compressed", "length", "crc")


def test_a_dictionary_is_one_to_16384_bytes() -> None:
    for size in (1, DICTIONARY_BYTES_MAX):
        assert read_dictionary(encode_dictionary(bytes(size))) == bytes(size)
    assert code_of(lambda: encode_dictionary(b"")) == "size"
    assert code_of(lambda: encode_dictionary(bytes(DICTIONARY_BYTES_MAX + 1))) == "size"
    too_long = seal(bytes(DICTIONARY_BYTES_MAX + 1), Kind.DICTIONARY, 7, 9, "deflate")
    assert code_of(lambda: read_dictionary(too_long)) == "size"
    assert code_of(lambda: check(too_long)) == "size"


def test_a_dictionary_is_the_one_that_its_subject_says() -> None:
    message = encode_dictionary(BODY)
    assert code_of(lambda: read_dictionary(message, bytes(DIGEST_BYTES))) == "subject"
    assert code_of(lambda: read_dictionary(encode_bundle(POINTS, epoch=1, seq=1))) == "kind"
    assert decode(message).points == [], "no history has any row of it"
    place = parse_uplink(f"up.VID-001.{dictionary_subject(DIGEST)}")
    assert (place.lane, place.key, place.system) == ("bulk", DIGEST.hex(), True)


@pytest.mark.parametrize(
    "leaf", ["d", "d.", "d.0123", "d.0123456789AB", "d.0123456789abc", "d.x.y"]
)
def test_a_subject_of_no_dictionary(leaf: str) -> None:
    with pytest.raises(SubjectError):
        parse_uplink(f"up.VID-001.{leaf}")


@given(st.data())
def test_damage_is_refused_or_gives_the_very_body(data: st.DataObject) -> None:
    whole = pack_with(encode_bundle(POINTS, epoch=7, seq=9), BODY)
    message = data.draw(strategies.damaged(whole))
    try:
        got = decode(plain(message, known(BODY)))
    except CodecError:
        return
    assert len(got.points) == len(POINTS)


def test_a_packed_message_cut_off_at_any_byte_is_refused() -> None:
    whole = pack_with(encode_bundle(POINTS, epoch=7, seq=9), BODY)
    for end in range(len(whole)):
        with pytest.raises(CodecError):
            decode(plain(whole[:end], known(BODY)))
    cut = whole[: HEADER_BYTES + DIGEST_BYTES - 1]
    assert code_of(lambda: digest_in(cut)) == "short"


def test_a_length_that_is_not_the_bodys_is_refused() -> None:
    body = unseal(encode_bundle(POINTS, epoch=7, seq=9))[1]
    for wrong in (len(body) - 1, len(body) + 1, 1):
        message = packed_by_hand(body, BODY, raw_len=wrong)
        assert code_of(lambda message=message: plain(message, known(BODY))) == "length"  # type: ignore[misc]
    trailing = packed_by_hand(body, BODY, tail=b"x")
    assert code_of(lambda: plain(trailing, known(BODY))) == "trailing"
    damaged = bytearray(packed_by_hand(body, BODY))
    damaged[18] ^= 1
    assert code_of(lambda: decode(plain(bytes(damaged), known(BODY)))) == "crc"


def test_a_bomb_is_inflated_no_further_than_it_says() -> None:
    """16 MiB of nothing in a few kilobytes, which says that it is a kilobyte."""
    bomb = packed_by_hand(bytes(16 * MIB), BODY, raw_len=1024)
    assert len(bomb) < 20_000
    tracemalloc.start()
    try:
        assert code_of(lambda: plain(bomb, known(BODY))) == "length"
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_dictionary_may_be_packed_and_may_be_a_bomb_no_more_than_any() -> None:
    packed = packed_by_hand(bytes(16 * MIB), BODY)
    message = bytes([packed[0] | 0x10]) + packed[1:]  # kind 3
    assert code_of(lambda: read_dictionary(plain(message, known(BODY)))) == "size"
