"""Messages of vehicle and hub about artifacts, and their limits: bytes in, words out.

A question goes out on ``blob.<device>``, each is answered with one word on ``blobr.<device>.<token>``:
msgpack arrays with a tag, so that a piece of 1 KB costs 60 bytes beside itself. Nothing is stored, so
a word may be lost; every question may be asked again. ``ask`` comes back with the answer.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

PIECE_BYTES_MAX = 32 * 1024
# Under way at once, so all that a cut can cost twice: less than a chunk of the object store.
WINDOW_BYTES_MAX = 96 * 1024
DIGEST_BYTES = 32
BYTES_MAX = 1 << 40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")

Name = Annotated[str, Meta(max_length=128)]
Digest = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
Size = Annotated[int, Meta(ge=0, le=BYTES_MAX)]
Ask = Annotated[int, Meta(ge=0, lt=1 << 53)]
Data = Annotated[bytes, Meta(max_length=PIECE_BYTES_MAX)]


class _Word(msgspec.Struct, frozen=True, array_like=True, tag_field="word"):
    ask: Ask


class Find(_Word, frozen=True, tag="find"):
    """Which version stands under a name; with a ``digest`` it must be that one."""

    name: Name
    digest: Digest = b""


class Read(_Word, frozen=True, tag="read"):
    """Some bytes of the version that was found last."""

    digest: Digest
    offset: Size
    length: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)]


class Offer(_Word, frozen=True, tag="offer"):
    """A file to be uploaded: how much of it is there? Also asked to hear how it stands."""

    name: Name
    digest: Digest
    size: Size


class Write(_Word, frozen=True, tag="write"):
    """Some bytes of the file that was offered last."""

    digest: Digest
    offset: Size
    data: Data


class Found(_Word, frozen=True, tag="found"):
    """To `Find`."""

    digest: Digest
    size: Size


class Piece(_Word, frozen=True, tag="piece"):
    """To `Read`."""

    offset: Size
    data: Data


class Held(_Word, frozen=True, tag="held"):
    """To `Offer` and `Write`: the first ``offset`` bytes are there; ``done``: checked and visible."""

    offset: Size
    done: bool = False


class Refused(_Word, frozen=True, tag="refused"):
    """To any question."""

    code: Annotated[str, Meta(max_length=32)]
    message: Annotated[str, Meta(max_length=500)]


Question: TypeAlias = Find | Read | Offer | Write
Answer: TypeAlias = Found | Piece | Held | Refused
encode = msgspec.msgpack.Encoder().encode
decode_question = msgspec.msgpack.Decoder(Question).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
NOT_READ = (msgspec.DecodeError, ValueError, RecursionError)
"""What a decoder raises for bytes that are no message."""

# Codes of refusals.
MISSING, CHANGED, NOT_OPEN = "missing", "changed", "not_open"
QUOTA, BAD_NAME, DIGEST, FULL, BUSY = "quota", "bad_name", "digest", "full", "busy"


def is_name(name: str) -> bool:
    """Return whether a device may use this as a file's name: no path, nothing to be escaped."""
    return _NAME.fullmatch(name) is not None
