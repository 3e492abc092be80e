"""A signature by an nkey, as proof that the sender of a public key holds the secret to it.

Pure. What is signed names its purpose, so that a proof for one thing is none for another, and no
server's nonce (which names none) can be passed off as one.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

if TYPE_CHECKING:
    from backhaul_codec.protocol.credentials import Credentials

_USER_KEY = re.compile(r"\AU[A-Z2-7]{55}\Z")
_SIGNATURE = re.compile(r"\A[A-Za-z0-9_-]{86}\Z")


def prove(key: Credentials, purpose: str, about: str) -> str:
    """Return the proof that ``key`` is held, for one purpose and one thing that it is about."""
    return key.sign(_signed(purpose, about, key.public_key))


def holds(proof: str, public_key: str, purpose: str, about: str) -> bool:
    """Tell whether a proof equals the result of `prove` for these; False for any garbage."""
    if not (_SIGNATURE.match(proof) and is_user_key(public_key)):
        return False
    try:
        VerifyKey(_raw(public_key)[1:33]).verify(
            _signed(purpose, about, public_key).encode(), base64.urlsafe_b64decode(proof + "==")
        )
    except (BadSignatureError, ValueError):
        return False
    return True


def is_user_key(text: str) -> bool:
    """Tell whether a text is the public nkey of a user (``U...``), its checksum right."""
    if not _USER_KEY.match(text):
        return False
    try:
        raw = _raw(text)
    except binascii.Error:
        return False
    checksum: bytes = nkeys.crc16_checksum(raw[:-2])
    return checksum == raw[-2:] and raw[0] == nkeys.PREFIX_BYTE_USER


def _raw(public_key: str) -> bytes:
    return base64.b32decode(public_key)


def _signed(purpose: str, about: str, public_key: str) -> str:
    return f"backhaul {purpose}\n{about}\n{public_key}"
