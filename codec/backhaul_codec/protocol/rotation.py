"""A vehicle's key replaced over the air: the messages of hub and vehicle about it.

The hub wishes, on ``s.key`` of DOWN; its newest word is all that it wishes. The vehicle answers with
events ``e.key`` (protocol/words.py). A JWT is no secret, and a key never leaves its vehicle. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from backhaul_codec.protocol.proof import holds, prove
from backhaul_codec.strict.json import JsonError, read_typed

if TYPE_CHECKING:
    from backhaul_codec.protocol.credentials import Credentials

SUBJECT = "s.key"
EVENT = "key"
PURPOSE = "rotation 1"
WISH_BYTES_MAX = 64 * 1024

RotationId = Annotated[str, Meta(pattern=r"^[0-9a-f]{24}\Z")]


class Wish(msgspec.Struct, frozen=True):
    """Make a key; or, with a `jwt`, log in with it from now on; or, when `done`, forget about it.

    `id`: which rotation it is, 96 random bits.
    """

    id: RotationId
    jwt: str = ""
    done: bool = False


def write_wish(wish: Wish) -> bytes:
    """Return the message."""
    return msgspec.json.encode(wish)


def read_wish(body: bytes) -> Wish:
    """Read the hub's wish. Raises: ValueError: it is no wish."""
    if len(body) > WISH_BYTES_MAX:
        raise ValueError(f"a wish of {len(body)} bytes, it has {WISH_BYTES_MAX} at most")
    try:
        return read_typed(body, Wish)
    except JsonError as error:
        raise ValueError(f"no wish for another key: {error}") from error


def prove_key(key: Credentials, device: str, id_: str) -> str:
    """Return the proof that a vehicle holds the key that it has made for a rotation."""
    return prove(key, PURPOSE, f"{device} {id_}")


def proves(proof: str, public_key: str, device: str, id_: str) -> bool:
    """Tell whether a proof equals the result of `prove_key`."""
    return holds(proof, public_key, PURPOSE, f"{device} {id_}")
