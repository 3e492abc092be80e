"""An identity document comes back as it was written, or says which field is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.protocol.identity import (
    DOCUMENT_BYTES_MAX,
    Identity,
    IdentityError,
    LinkCapacity,
    decode_identity,
    encode_identity,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB+/A=\n-----END CERTIFICATE-----\n"
SEED = "SU" + "A" * 56
FULL = Identity(
    device="VID-001",
    token="0123456789abcdef01234567",
    leaf_urls=("tls://a.example.org:7422", "tls://b.example.org:7422"),
    ca=PEM + PEM,
    jwt="eyJ0.eyJq.c2ln",
    seed=SEED,
    down_stream="DOWN_00",
    nodes=("battery", "motor rear"),
    link=LinkCapacity("scheduled", 20.0),
)
LEAST: dict[str, Any] = {
    "version": 1,
    "device": "VID-001",
    "token": "ab",
    "leaf_urls": ["nats-leaf://VID-001:secret@hub:7422"],
}


def test_it_comes_back_as_it_was_written() -> None:
    text = encode_identity(FULL)
    assert decode_identity(text) == FULL
    assert decode_identity(text.encode()) == FULL


def test_what_may_be_left_out_has_its_default() -> None:
    found = decode_identity(json.dumps(LEAST))
    assert (found.ca, found.jwt, found.nodes, found.link) == (
        "",
        "",
        (),
        LinkCapacity("always", 1000.0),
    )


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("version", {"version": 2}),
        ("version", {"version": True}),
        ("version", {"version": None}),
        ("device", {"device": "a.b"}),
        ("device", {"device": "VID-001\n"}),
        ("token", {"token": "a b"}),
        ("token", {"token": "ab\n"}),
        ("token", {"token": ""}),
        ("leaf_urls", {"leaf_urls": []}),
        ("leaf_urls", {"leaf_urls": ["http://hub:7422"]}),
        ("leaf_urls", {"leaf_urls": ["nats-leaf://"]}),
        ("leaf_urls", {"leaf_urls": ["nats-leaf://hub:port"]}),
        ("leaf_urls", {"leaf_urls": ["nats-leaf://[hub:7422"]}),
        ("leaf_urls", {"leaf_urls": ['nats-leaf://hub:7422"\n include "x']}),
        ("leaf_urls", {"leaf_urls": ["tls://hub:7422"] * 17}),
        ("leaf_urls", {"jwt": "a.b.c"}),
        ("ca", {"ca": "hello"}),
        ("ca", {"ca": PEM + "hello"}),
        ("jwt", {"jwt": "a.b", "leaf_urls": ["tls://hub:7422"]}),
        ("seed", {"seed": "SA" + "A" * 56, "jwt": "a.b.c", "leaf_urls": ["tls://hub"]}),
        ("seed", {"seed": SEED}),
        ("down_stream", {"down_stream": "DOWN.>"}),
        ("nodes", {"nodes": ["b", "a"]}),
        ("nodes", {"nodes": ["a", "a"]}),
        ("nodes", {"nodes": [""]}),
        ("nodes", {"nodes": ["n" * 125]}),
        ("nodes", {"nodes": [f"n{number:02}" for number in range(65)]}),
        ("link.mode", {"link": {"mode": "never"}}),
        ("link.kbit_s", {"link": {"kbit_s": 0}}),
        ("", {"more": 1}),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(IdentityError) as caught:
        decode_identity(json.dumps(LEAST | change))
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["device", "token", "leaf_urls"])
def test_what_must_be_there_is_named(name: str) -> None:
    with pytest.raises(IdentityError, match=name):
        decode_identity(json.dumps({key: LEAST[key] for key in LEAST if key != name}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"3", b" " * (DOCUMENT_BYTES_MAX + 1)])
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(IdentityError):
        decode_identity(text)


@given(st.binary() | st.text())
def test_garbage_raises_one_error_only(text: str | bytes) -> None:
    with pytest.raises(IdentityError):
        decode_identity(text)


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(IdentityError):
        encode_identity(Identity(device="a.b", token="ab", leaf_urls=("tls://hub:7422",)))


def test_no_secret_is_shown() -> None:
    assert repr(FULL) == "Identity('VID-001')"
    wrong = LEAST | {"seed": SEED + "B", "jwt": "a.b.c", "leaf_urls": ["tls://hub:7422"]}
    with pytest.raises(IdentityError) as caught:
        decode_identity(json.dumps(wrong))
    assert SEED not in str(caught.value)
