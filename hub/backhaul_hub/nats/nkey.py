"""One key of the NATS kind: an ed25519 key pair, its text tagged by the role (O, A, U). Pure."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import nkeys

from backhaul_hub.errors import KeyRefusedError

Kind = Literal["operator", "account", "user"]
_PREFIXES: dict[Kind, int] = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A key pair."""

    kind: Kind
    public: str
    """As in OABC..., AABC..., UABC...: what others know it by."""
    seed: str = field(repr=False)
    """As in SO..., SA..., SU...: whoever has it is the operator, the account, the user."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(data)
        return signature


def public_text(kind: Kind, raw: bytes) -> str:
    """Return how others know a public key of 32 bytes, as in UABC...."""
    tagged = bytes([_PREFIXES[kind]]) + raw
    checksum: int = nkeys.crc16(tagged)
    return base64.b32encode(tagged + checksum.to_bytes(2, "little")).decode()


def new_key(kind: Kind, random: Callable[[int], bytes] = secrets.token_bytes) -> Key:
    """Make a key; `random` gives so many bytes that nobody can guess."""
    seed: bytes = nkeys.encode_seed(random(_SEED_BYTES), _PREFIXES[kind])
    return read_key(seed.decode())


def read_key(seed: str) -> Key:
    """Return the key of a seed.

    Raises:
        KeyRefusedError: it is no seed of an operator, account or user, or damaged; it is not said.
    """
    text = seed.strip()
    try:
        prefix, raw = nkeys.decode_seed(text.encode("ascii"))
        # nkeys does not check the checksum.
        whole = nkeys.encode_seed(raw, prefix).decode() == text
        kind = next((each for each, byte in _PREFIXES.items() if byte == prefix), None)
    except (nkeys.NkeysError, ValueError) as error:
        raise KeyRefusedError("no seed of a key, or a damaged one") from error
    if kind is None or not whole:
        raise KeyRefusedError("no seed of an operator's, account's or user's key, or a damaged one")
    public: bytes = nkeys.from_seed(bytearray(text.encode())).public_key
    return Key(kind, public.decode(), text)
