"""Enrolment tokens and keys for tests, made without a hub."""

from __future__ import annotations

import base64
import json

import nkeys

from backhaul_codec.protocol.credentials import Credentials, parse_seed
from backhaul_codec.protocol.enrolment import Token


def user_key(fill: int) -> Credentials:
    """Return a user's key, always the same for the same number."""
    seed = nkeys.encode_seed(bytes([fill]) * 32, nkeys.PREFIX_BYTE_USER)
    return parse_seed(seed.decode())


def unsigned_jwt(key: Credentials) -> str:
    """Return what has the form of a JWT about a key; no server takes it."""
    body = base64.urlsafe_b64encode(json.dumps({"sub": key.public_key}).encode()).decode()
    return f"eyJ0.{body.rstrip('=')}.c2ln"


def some_token(url: str = "nats-leaf://hub.example.org:7422", *, expires_s: int = 1 << 32) -> Token:
    """Return a token of no hub."""
    key = user_key(1)
    return Token(
        id="0123456789abcdef01234567",
        device="VID-001",
        leaf_urls=(url,),
        jwt=unsigned_jwt(key),
        seed=key.seed,
        expires_s=expires_s,
    )
