"""Wishes for another key, and the words that answer them, come back; garbage is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.protocol.rotation import Wish, prove_key, proves, read_wish, write_wish
from backhaul_codec.protocol.words import KeyWord, WordError, read_word
from backhaul_codec.subjects import event_subject, parse_leaf
from tests.support.enrolment_tokens import user_key

ID = "0123456789abcdef01234567"
KEY = user_key(1)


@pytest.mark.parametrize("wish", [Wish(ID), Wish(ID, jwt="a.b.c"), Wish(ID, done=True)])
def test_a_wish_comes_back(wish: Wish) -> None:
    assert read_wish(write_wish(wish)) == wish


@given(st.binary(max_size=200))
def test_garbage_is_no_wish(body: bytes) -> None:
    with pytest.raises(ValueError, match="no wish"):
        read_wish(body)


@pytest.mark.parametrize("body", [b'{"id":"../../etc"}', b'{"id":1}', b" " * 70_000])
def test_nor_is_what_is_like_one(body: bytes) -> None:
    with pytest.raises(ValueError, match="wish"):
        read_wish(body)


def test_a_proof_is_of_one_device_and_one_rotation() -> None:
    proof = prove_key(KEY, "VID-001", ID)
    assert proves(proof, KEY.public_key, "VID-001", ID)
    assert not proves(proof, KEY.public_key, "VID-002", ID)
    assert not proves(proof, KEY.public_key, "VID-001", "f" * 24)
    assert not proves(proof, user_key(2).public_key, "VID-001", ID)


def word(body: Any, leaf_subject: str = "e.key") -> Any:
    value = Opaque(6, body if isinstance(body, bytes) else json.dumps(body).encode())
    point = Point("", "key", 1_700_000_000_000_000_000, value)
    return read_word(parse_leaf(leaf_subject), 1, encode_point(point, epoch=1, seq=1))


def test_what_a_vehicle_says_of_its_key_is_read() -> None:
    said = {"id": ID, "state": "made", "public_key": KEY.public_key, "proof": "p"}
    assert word(said) == KeyWord(ID, "made", KEY.public_key, "p", "")
    failed = word({"id": ID, "state": "failed", "why": "x" * 1000})
    assert (failed.state, len(failed.why)) == ("failed", 200)
    assert event_subject("key") == "e.key"
    assert parse_leaf("e.key").system


@pytest.mark.parametrize(
    "body", [1, {}, {"id": ID}, {"id": ID, "state": "lost"}, b'{"x":' + b"[" * 100_000]
)
def test_what_is_no_word_on_a_key_is_refused(body: Any) -> None:
    with pytest.raises(WordError):
        word(body)


def test_no_program_says_it_in_the_agents_name() -> None:
    assert word({"id": ID, "state": "written"}, "e.app.key") is None
