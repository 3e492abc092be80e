"""Pack messages against a dictionary that both ends have, and give back the message that anybody can read.

Most of a small bundle is names and structure, which the bundle before had as well. A *dictionary* is the body
of such a bundle, sent once in the lane as a message of its own, `d.<digest>`; the agent packs later bundles
against it once the hub has confirmed that it holds it. The payload of codec 3 is the digest of the dictionary and
a raw deflate stream with that preset dictionary (RFC 1951; `zdict` of zlib).

Each reader asks for `plain(message, lookup)` where a message comes in: from there on, nothing knows of
dictionaries. A message's hash in its lane's chain is that of the bytes as they came.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeAlias

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Kind
from backhaul_codec.wire.compression import DEFLATE_LEVEL, DICTIONARY, NONE, inflate
from backhaul_codec.wire.envelope import CODEC_OFFSET, payload_of, peek, seal, unseal

DIGEST_BYTES = 6
DICTIONARY_BYTES_MAX = 16 << 10
"""Deflate looks back 32 KiB at most, over the dictionary and the body."""

_PACKED = bytes([DICTIONARY])
Lookup: TypeAlias = Callable[[bytes], bytes | None]
"""Gives the dictionary of one device with a digest, None where the reader does not have it."""


def digest_of(dictionary: bytes) -> bytes:
    """Return the `DIGEST_BYTES` by which messages refer to a dictionary: BLAKE2b of its bytes."""
    return blake2b(dictionary, digest_size=DIGEST_BYTES).digest()


def encode_dictionary(dictionary: bytes) -> bytes:
    """Return the message that carries a dictionary, to go out on `subjects.dictionary_subject`.

    Raises:
        CodecError: `size`, it is empty or longer than `DICTIONARY_BYTES_MAX`.
    """
    require_dictionary(dictionary)
    return seal(dictionary, Kind.DICTIONARY, 0, 0, "deflate")


def read_dictionary(message: bytes, digest: bytes | None = None) -> bytes:
    """Return the dictionary in a message, proven; `digest`: the one that its subject says.

    Raises:
        CodecError: as `unseal`, `kind` for another message, `subject` if the digest is another.
    """
    header, body = unseal(message)
    if header.kind is not Kind.DICTIONARY:
        raise CodecError(f"a {header.kind.name.lower()} is no dictionary", "kind")
    require_dictionary(body)
    if digest is not None and digest_of(body) != digest:
        raise CodecError("the dictionary is not the one that its subject says", "subject")
    return body


def digest_in(message: bytes) -> bytes | None:
    """Return the digest of the dictionary that a message refers to, None where it refers to none.

    Raises:
        CodecError: as `peek`, `short` where the digest is cut off.
    """
    payload_at = payload_of(message)
    if message[CODEC_OFFSET] != DICTIONARY:
        return None
    digest = bytes(message[payload_at : payload_at + DIGEST_BYTES])
    if len(digest) < DIGEST_BYTES:
        raise CodecError("the digest of the dictionary is cut off", "short")
    return digest


def is_packed(message: bytes) -> bool:
    """Tell whether a message says that it is packed against a dictionary; cheap, and nothing is proven."""
    return message[CODEC_OFFSET : CODEC_OFFSET + 1] == _PACKED


def pack_with(message: bytes, dictionary: bytes) -> bytes:
    """Return the message packed against a dictionary, or as it is where that is not smaller.

    Epoch, seq and link stay. Raises: CodecError, as `unseal`.
    """
    body = unseal(message)[1]
    squeezer = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15, zdict=dictionary)
    payload = digest_of(dictionary) + squeezer.compress(body) + squeezer.flush()
    payload_at = payload_of(message)
    if len(payload) >= len(message) - payload_at:
        return message
    return _with_payload(message, payload_at, DICTIONARY, payload)


def plain(message: bytes, lookup: Lookup) -> bytes:
    """Return a message that needs no dictionary: as it is, or with its body inflated and not compressed.

    Epoch, seq, link and crc stay; the crc is proven by the reader that unseals it. Raises:
    CodecError, as `peek` and `decompress`, `dictionary` where the reader does not have the dictionary.
    """
    digest = digest_in(message)
    if digest is None:
        return message
    dictionary = lookup(digest)
    if dictionary is None:
        raise CodecError(f"the dictionary {digest.hex()} is not here", "dictionary")
    payload_at = payload_of(message)
    payload = memoryview(message)[payload_at + DIGEST_BYTES :]
    body = inflate(payload, peek(message).raw_len, dictionary)
    return _with_payload(message, payload_at, NONE, body)


def require_dictionary(dictionary: bytes) -> None:
    """Refuse a dictionary that is empty or too long. Raises: CodecError (`size`)."""
    if not 0 < len(dictionary) <= DICTIONARY_BYTES_MAX:
        raise CodecError(
            f"a dictionary has 1 to {DICTIONARY_BYTES_MAX} bytes, not {len(dictionary)}", "size"
        )


def _with_payload(message: bytes, payload_at: int, codec: int, payload: bytes) -> bytes:
    head = bytearray(message[:payload_at])
    head[CODEC_OFFSET] = codec
    return bytes(head) + payload
