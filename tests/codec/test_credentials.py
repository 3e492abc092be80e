"""Credentials: what is read from `.creds` files and seeds, and what is refused."""

from __future__ import annotations

import base64

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.protocol.credentials import (
    Credentials,
    CredentialsError,
    parse_credentials,
    parse_seed,
)
from tests.support.jwts import jwt_of

SEED = nkeys.encode_seed(b"k" * 32, nkeys.PREFIX_BYTE_USER).decode()
OTHER = nkeys.encode_seed(b"o" * 32, nkeys.PREFIX_BYTE_USER).decode()
ACCOUNT = nkeys.encode_seed(b"k" * 32, nkeys.PREFIX_BYTE_ACCOUNT).decode()
PUBLIC = nkeys.from_seed(bytearray(SEED.encode())).public_key.decode()


JWT = jwt_of({"sub": PUBLIC, "exp": 1_000})
TEXT = Credentials(SEED, PUBLIC, JWT).text()


def test_a_creds_file_is_read_and_written_back_the_same() -> None:
    found = parse_credentials(TEXT)
    assert found == Credentials(SEED, PUBLIC, JWT, 1_000)
    assert found.text() == TEXT
    assert parse_credentials(TEXT.replace("\n", "\r\n")) == found
    assert parse_seed(f"{SEED}\n") == Credentials(SEED, PUBLIC)
    assert parse_seed(parse_seed(SEED).text()) == parse_seed(SEED)


def test_a_signature_is_of_the_key() -> None:
    sig = parse_seed(SEED).sign("nonce")
    pair = nkeys.from_seed(bytearray(SEED.encode()))
    raw = base64.urlsafe_b64decode(sig + "=" * (-len(sig) % 4))
    assert pair.verify(b"nonce", raw)
    with pytest.raises(nkeys.ErrInvalidSignature):
        pair.verify(b"another", raw)


def test_expiry_is_told_in_words() -> None:
    found = parse_credentials(TEXT)
    assert found.expired(999) == ""
    assert found.expired(1_000) == "they expired at 1970-01-01 00:16:40 UTC"
    assert parse_seed(SEED).expired(1e12) == ""


def test_a_secret_is_never_shown() -> None:
    shown = repr(parse_credentials(TEXT))
    assert SEED not in shown
    assert JWT not in shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no NATS USER JWT"),
        ("user = 'spark'", "no NATS USER JWT"),
        (TEXT[: TEXT.index("-----BEGIN USER")], "no USER NKEY SEED"),
        (TEXT[: TEXT.index("------END USER")], "no USER NKEY SEED"),
        (TEXT.replace(JWT, "a.b"), "damaged"),
        (TEXT.replace(JWT, jwt_of(["sub"])), "damaged"),
        (TEXT.replace(JWT, jwt_of({"exp": 1})), "damaged"),
        (TEXT.replace(JWT, jwt_of({"sub": PUBLIC, "exp": "soon"})), "damaged"),
        (TEXT.replace(SEED, OTHER), "not of the key"),
        (TEXT.replace(SEED, SEED[:20]), "damaged"),
        (TEXT + " " * 70_000, "longer than"),
    ],
)
def test_what_is_no_creds_file_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(CredentialsError, match=reason) as caught:
        parse_credentials(text)
    assert SEED not in str(caught.value)


@pytest.mark.parametrize(
    ("seed", "reason"),
    [
        ("", "damaged"),
        ("SUAÄ", "damaged"),
        (PUBLIC, "damaged"),
        (SEED.lower(), "damaged"),
        (SEED[:-1], "damaged"),
        (SEED[:-3] + ("AAA" if SEED[-3:] != "AAA" else "BBB"), "damaged"),
        (ACCOUNT, "no user's"),
    ],
)
def test_what_is_no_seed_is_refused_with_its_reason(seed: str, reason: str) -> None:
    with pytest.raises(CredentialsError, match=reason):
        parse_seed(seed)


@given(st.text() | st.text(alphabet="SUABCDEFGHIJKLMNOPQRTVWXYZ234567", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_seed, parse_credentials):
        with pytest.raises(CredentialsError):
            parse(text)
