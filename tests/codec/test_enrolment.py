"""Tokens, requests and answers come back as they were written; anything else is refused with why."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.protocol.enrolment import (
    EnrolmentError,
    EnrolmentRefused,
    read_answer,
    read_request,
    read_token,
    request_subject,
    write_answer,
    write_request,
    write_token,
)
from backhaul_codec.protocol.identity import Identity
from backhaul_codec.protocol.proof import holds, is_user_key, prove
from tests.support.enrolment_tokens import some_token, unsigned_jwt, user_key

KEY, OTHER = user_key(1), user_key(2)
TOKEN = some_token()
TOKEN_ID = TOKEN.id
IDENTITY = Identity(device="VID-001", token="ab", leaf_urls=TOKEN.leaf_urls, jwt=unsigned_jwt(KEY))


def test_a_token_comes_back_as_it_was_written() -> None:
    text = write_token(TOKEN)
    assert read_token(text) == TOKEN
    assert TOKEN.credentials.public_key == KEY.public_key


def test_line_breaks_of_a_terminal_do_not_matter() -> None:
    text = write_token(TOKEN)
    assert read_token(f"  {text[:70]}\r\n {text[70:]}\n") == TOKEN


def test_every_part_of_a_token_is_refused() -> None:
    text = write_token(TOKEN)
    for length in range(len(text)):
        with pytest.raises(EnrolmentError):
            read_token(text[:length])


@given(
    st.text() | st.binary().map(lambda data: "backhaul1_" + base64.urlsafe_b64encode(data).decode())
)
def test_garbage_is_no_token(text: str) -> None:
    with pytest.raises(EnrolmentError):
        read_token(text)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"id": "0123"},
        {"id": "../../etc/passwd/0123456"},
        {"device": "a b"},
        {"leaf_urls": []},
        {"leaf_urls": ["http://hub"]},
        {"leaf_urls": ['nats-leaf://hub"\n']},
        {"ca": "no certificate"},
        {"jwt": "x"},
        {"jwt": unsigned_jwt(OTHER)},
        {"seed": "SUA"},
        {"expires_s": -1},
        {"more": 1},
    ],
)
def test_a_token_with_one_wrong_field_is_refused_and_shows_no_secret(
    change: dict[str, Any],
) -> None:
    raw = msgspec.to_builtins(TOKEN) | change
    text = "backhaul1_" + base64.urlsafe_b64encode(json.dumps(raw).encode()).decode().rstrip("=")
    with pytest.raises(EnrolmentError) as caught:
        read_token(text)
    assert KEY.seed not in str(caught.value)


def test_no_repr_shows_a_secret() -> None:
    assert KEY.seed not in repr(TOKEN)


def test_a_request_is_proved_by_its_key() -> None:
    request = read_request(request_subject(TOKEN_ID), write_request(TOKEN_ID, KEY))
    assert (request.token, request.public_key) == (TOKEN_ID, KEY.public_key)


@pytest.mark.parametrize(
    "change",
    [
        {"public_key": OTHER.public_key},
        {"public_key": KEY.public_key[:-1] + "A"},
        {"public_key": "A" + KEY.public_key[1:]},
        {"public_key": ""},
        {"proof": ""},
        {"proof": "A" * 86},
        {"proof": "\u00e4" * 86},
        {"token": "f" * 24},
        {"token": "*"},
        {"version": 2},
    ],
)
def test_a_request_with_one_field_changed_is_refused(change: dict[str, Any]) -> None:
    raw = json.loads(write_request(TOKEN_ID, KEY)) | change
    subject = request_subject(raw["token"])
    with pytest.raises(EnrolmentError):
        read_request(subject, json.dumps(raw).encode())


def test_a_request_of_another_token_than_its_subject_is_refused() -> None:
    with pytest.raises(EnrolmentError, match="another token"):
        read_request(request_subject("f" * 24), write_request(TOKEN_ID, KEY))


@given(st.binary(max_size=2000))
def test_garbage_is_no_request(body: bytes) -> None:
    with pytest.raises(EnrolmentError):
        read_request(request_subject(TOKEN_ID), body)


def test_a_proof_for_one_purpose_is_none_for_another() -> None:
    proof = prove(KEY, "rotation 1", TOKEN_ID)
    assert holds(proof, KEY.public_key, "rotation 1", TOKEN_ID)
    assert not holds(proof, KEY.public_key, "enrolment 1", TOKEN_ID)
    assert not holds(proof, KEY.public_key, "rotation 1", "f" * 24)
    assert not holds(proof, OTHER.public_key, "rotation 1", TOKEN_ID)


@given(st.text(max_size=100), st.text(max_size=60))
def test_garbage_proves_nothing(proof: str, public_key: str) -> None:
    assert not holds(proof, public_key, "rotation 1", "")
    assert not holds(proof, KEY.public_key, "rotation 1", "")


def test_only_the_public_key_of_a_user_is_one() -> None:
    account = nkeys.from_seed(bytearray(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT)))
    assert is_user_key(KEY.public_key)
    assert not is_user_key(account.public_key.decode())
    assert not is_user_key(KEY.public_key + "\n")


def test_answers_come_back_as_they_were_written() -> None:
    refused = EnrolmentRefused(code="used", message="it was used before")
    assert read_answer(write_answer(IDENTITY), "VID-001") == IDENTITY
    assert read_answer(write_answer(refused), "VID-001") == refused
    assert not refused.passes
    assert EnrolmentRefused(code="busy", message="").passes


def test_an_answer_about_another_device_is_refused() -> None:
    with pytest.raises(EnrolmentError):
        read_answer(write_answer(IDENTITY), "VID-002")


@given(st.binary(max_size=300))
def test_garbage_is_no_answer(body: bytes) -> None:
    with pytest.raises(EnrolmentError):
        read_answer(body, "VID-001")
