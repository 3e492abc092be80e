"""Watermarks in few bytes: what is said so comes out as DOWN has it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.protocol.push import terse, told

LANE = "s.watermark.n_gps"


def words(epoch: int, seq: int, hash_: str, **more: int) -> bytes:
    return msgspec.json.encode({"epoch": epoch, "seq": seq, "hash": hash_, **more})


@given(
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**40 - 1),
    st.sampled_from(["", "00ffab120000", "ffffffffffff"]),
)
def test_a_terse_watermark_says_the_same_bytes(epoch: int, seq: int, hash_: str) -> None:
    body = words(epoch, seq, hash_)
    said = terse(LANE, body)
    assert said is not None
    subject, short = said
    assert subject == "k.n_gps"
    assert len(short) == (18 if hash_ else 12)
    assert told(subject, short) == (LANE, body)


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("s.held.bulk", words(1, 1, "")),
        ("p.lamp.on.%", words(1, 1, "")),
        (LANE, words(1, 1, "", fork=1)),
        (LANE, words(1, 1, "ff")),
        (LANE, words(1, 1, "FFFFFFFFFFFF")),
        (LANE, words(-1, 1, "")),
        (LANE, words(2**32, 1, "")),
        (LANE, words(1, 2**64, "")),
        (LANE, b'{"epoch": 1, "seq": 1, "hash": ""}'),
        (LANE, b"x"),
        (LANE, b""),
    ],
)
def test_what_says_more_or_is_none_is_left_as_it_is(subject: str, body: bytes) -> None:
    assert terse(subject, body) is None


@pytest.mark.parametrize(
    ("subject", "body"), [("k.bulk", b""), ("k.bulk", bytes(13)), ("s.watermark.bulk", bytes(12))]
)
def test_what_is_no_terse_watermark_is_none(subject: str, body: bytes) -> None:
    assert told(subject, body) is None
