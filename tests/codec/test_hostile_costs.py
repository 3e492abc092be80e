"""What hostile messages cost: no more than their bytes are worth."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import cbor2
import pytest

from backhaul_codec import (
    CodecError,
    Kind,
    check,
    encode_frame,
)
from backhaul_codec.wire.envelope import HEADER_BYTES, seal, unseal
from tests.codec.hostile_bodies import MIB, POINTS, fields, sealed
from tests.support.alike import outcome

HUGE = [
    *(b"\x5a\xff\xff\xff\xff", b"\x7a\xff\xff\xff\xff", b"\x9a\xff\xff\xff\xff"),
    *(b"\xba\xff\xff\xff\xff", b"\x5b" + b"\xff" * 8, b"\x7b\x7f" + b"\xff" * 7),
    *(b"\x9b" + b"\xff" * 8, b"\xbb\x00\x00\x00\x01" + b"\xff" * 4, b"\xc2\x5b" + b"\xff" * 8),
    *(b"\x5f\x41a\xff", b"\x9f\x01\xff", b"\xbf\xff", b"\x1c", b"\xff", b"\x7f\x61a\xff"),
]


@pytest.mark.parametrize("item", HUGE, ids=lambda item: item.hex())
@pytest.mark.parametrize("padding", [0, 600_000], ids=["alone", "in a large body"])
def test_lengths_that_are_lies(item: bytes, padding: int) -> None:
    """A large body is walked before it is read; a small one cbor2 reads itself."""
    whole = b"\x82\x5a" + struct.pack(">I", padding) + bytes(padding) + item
    for body in (item, b"\xa1\x18\x28" + item, whole):
        assert _peak_bytes(sealed(body)) < 4 * MIB
        assert outcome(sealed(body)) == "cbor"
        assert outcome(sealed(body, Kind.POINT)) == "cbor"


@pytest.mark.parametrize("depth", [7, 100, 100_000, 2_000_000])
@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x01", b"\xc6"], ids=["array", "map", "tag"])
def test_deep_nesting(depth: int, opening: bytes) -> None:
    assert outcome(sealed(b"\xa1\x18\x28" + opening * depth + b"\x00")) in ("cbor", "size")


@pytest.mark.slow
def test_a_million_small_items() -> None:
    for item in (b"\x80", b"\xf9\x00\x00"):
        body = b"\x9a" + struct.pack(">I", 5 * MIB) + item * (5 * MIB)
        message = sealed(body)
        assert outcome(message) == "size"
        assert _peak_bytes(message) < 4 * MIB + len(body)


@pytest.mark.slow
def test_as_many_items_as_there_may_be_cost_little() -> None:
    message = sealed(b"\x9a" + struct.pack(">I", 2**19 - 5) + b"\x80" * (2**19 - 5))
    assert outcome(message) == "field"
    assert _peak_bytes(message) < 64 * MIB


def _bignum(size: int) -> bytes:
    return b"\xc2\x5a" + struct.pack(">I", size) + b"\xff" * size


COSTLY = {
    "fraction of huge integers": b"\xd8\x1e\x82" + _bignum(4 * MIB) + _bignum(4 * MIB),
    "decimal with a huge exponent": b"\xc4\x82\x1b" + b"\x7f" + b"\xff" * 7 + b"\x01",
    "big float with a huge exponent": b"\xc5\x82\x1b" + b"\x7f" + b"\xff" * 7 + b"\x01",
    "pattern": b"\xd8\x23\x78\x1e(((a{1,9}){1,9}){1,9}){1,9}bbb",
    "shared reference to itself": b"\xd8\x1c\x81\xd8\x1d\x00",
    "string references": b"\xd9\x01\x00\x82\x63aaa\xd8\x19\x00",
    "mail": b"\xd8\x24\x63a:b",
    "date": b"\xc0\x63xyz",
}


@pytest.mark.parametrize("item", COSTLY.values(), ids=COSTLY)
@pytest.mark.timeout(60)
def test_tags_that_cost_more_than_their_bytes_are_inert(item: bytes) -> None:
    body = cbor2.dumps(fields())
    extended = b"\xaf" + body[1:] + b"\x18\x28" + item
    assert outcome(sealed(extended)) == ""  # as a field from 32 on: read past
    assert outcome(sealed(b"\x82\x00" + item, Kind.POINT)) == "value"


@pytest.mark.slow
def test_no_tag_makes_anything_that_counts_as_a_field() -> None:
    """Should a newer cbor2 understand another tag, the shapes of fields still do not match it."""
    for tag in [*range(400), 1004, 43000, 55799]:
        for inner in (b"\x41a", b"\x61a", b"\x01", b"\x81\x01"):
            head = b"\xd9" + struct.pack(">H", tag)
            body = cbor2.dumps(fields(_13=...))
            assert outcome(
                sealed(body[:1].replace(b"\xad", b"\xae") + body[1:] + b"\x0d" + head + inner)
            )


@pytest.mark.slow
def test_a_deflate_bomb_stops_at_what_it_declared() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    payload = bomb.compress(bytes(200 * MIB)) + bomb.flush()
    for raw_len, limit in ((1, 1), (1000, 1), (16 * MIB, 40)):
        header = struct.pack("<BBIQII", 1, 1, 1, 1, raw_len, 0)
        assert outcome(header + payload) == "length"
        assert _peak_bytes(header + payload) < limit * MIB


def test_deflate_streams_must_end_where_the_message_does() -> None:
    message = encode_frame(POINTS, epoch=1, seq=1)
    assert outcome(message + b"\x03\x00") == "trailing"
    header, body = unseal(message)
    open_end = zlib.compressobj(6, zlib.DEFLATED, -15)
    payload = open_end.compress(body) + open_end.flush(zlib.Z_SYNC_FLUSH)
    assert outcome(message[:HEADER_BYTES] + payload) == "compressed"
    assert outcome(message[:HEADER_BYTES] + b"\xff" * 100) == "compressed"
    assert header.raw_len == len(body)


@pytest.mark.parametrize("field", ["text", "type", "node", "origin"])
def test_one_long_text_for_many_points_is_refused(field: str) -> None:
    """A quarter of a million points may share a text, but not one that fills the memory."""
    n = 2**18
    names = {"type": "t", "node": "n", "origin": "o"} | {field: "x" * 250}
    body = {0: n, 1: 0, 2: 1, 3: bytes(n - 1), 4: bytes(n), 5: [names["type"]], 9: {6: bytes(n)}}
    body |= {7: bytes([4, 6, 0]), 10: ["x" * (MIB if field == "text" else 1)], 13: names["node"]}
    body |= {12: [[names["origin"]], bytes(n)]}
    message = seal(cbor2.dumps(body), Kind.FRAME, 1, 1, "deflate")
    if field == "text":
        assert outcome(message) == "size"
        assert _peak_bytes(message) < 16 * MIB
    else:  # 250 bytes a point are within the limit, and with a second such name are not
        assert check(message).raw_len
        both = body | {13: "x" * 250, 12: [["o" * 250], bytes(n)]}
        assert outcome(seal(cbor2.dumps(both), Kind.FRAME, 1, 1, "deflate")) == "size"


def _peak_bytes(message: bytes) -> int:
    """Return the most memory that check held at once, the body included."""
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            check(message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
