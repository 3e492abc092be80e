"""Seal a body into an envelope and open it again.

Version 1 has a fixed header of 22 bytes, little-endian: version and kind, codec, epoch, seq, raw_len,
crc32. Version 2 is how a vehicle's lanes are written: 24 bytes, with narrower seq and raw_len, and
behind the crc the *link*: the hash of the lane's message before this one (`hash_of`). So a lane is a
chain, and two histories of one lane cannot pass for one. Epoch and seq stand outside the body, so that
a hub proves continuity without inflating anything, and an agent stamps a stored message again without
encoding it again. Both versions are read for ever.
"""

import zlib
from hashlib import blake2b
from struct import Struct

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind
from backhaul_codec.wire.compression import CODEC_IDS, DICTIONARY, compress, decompress

VERSION = 1
CHAINED = 2
"""The version whose messages carry a link."""
BODY_BYTES_MAX = 16 << 20
HASH_BYTES = 6
NO_LINK = bytes(HASH_BYTES)
"""The link of a lane's first message, and of one whose predecessor's hash nobody knows any more."""

_HEADER = Struct("<BBIQII")
_STAMP = Struct("<IQ")
CODEC_OFFSET, _STAMP_OFFSET = 1, 2
HEADER_BYTES = _HEADER.size
# seq in 5 bytes as u32 and u8, raw_len - 1 in 3 bytes as u16 and u8: 16 MiB fits so.
_CHAINED = Struct("<BBIIBHBI6s")
CHAINED_BYTES = _CHAINED.size
_EPOCH_MAX, _SEQ_MAX, CHAINED_SEQ_MAX = 2**32 - 1, 2**64 - 1, 2**40 - 1
_KINDS = {kind << 4 | VERSION: kind for kind in Kind}
_CHAINED_KINDS = {kind << 4 | CHAINED: kind for kind in Kind}


def seal(body: bytes, kind: Kind, epoch: int, seq: int, compression: str) -> bytes:
    """Compress a body and put the header of version 1 before it. Raises: CodecError (`size`, `stamp`, `codec`)."""
    if len(body) > BODY_BYTES_MAX:
        raise CodecError(
            f"a body of {len(body)} bytes is over the limit of {BODY_BYTES_MAX}: send fewer points",
            "size",
        )
    codec = CODEC_IDS.get(compression)
    if codec is None:
        raise CodecError(f"compression {compression!r} is not one of {list(CODEC_IDS)}", "codec")
    _require_stamp(epoch, seq, _SEQ_MAX)
    header = _HEADER.pack(kind << 4 | VERSION, codec, epoch, seq, len(body), zlib.crc32(body))
    return header + compress(body, codec)


def unseal(message: bytes) -> tuple[Header, bytes]:
    """Return the header and the body, its length and crc proven. Raises: CodecError."""
    header, codec, crc, payload_at = _read_header(message)
    body = decompress(memoryview(message)[payload_at:], codec, header.raw_len)
    if zlib.crc32(body) != crc:
        raise CodecError("the crc of the body is wrong", "crc")
    return header, body


def peek(message: bytes) -> Header:
    """Read the fixed header alone; the body is neither inflated nor proven. Raises: CodecError."""
    return _read_header(message)[0]


def body_bytes_of(message: bytes) -> int:
    """Return a body's size in bytes by its header, 0 where that is too short; faster than `peek`, and nothing is proven."""
    if len(message) <= CHAINED_BYTES:
        return 0
    if message[0] & 0x0F == CHAINED:
        return int.from_bytes(message[11:14], "little") + 1
    return int.from_bytes(message[14:18], "little")


def restamp(message: bytes, *, epoch: int, seq: int) -> bytes:
    """Return the message in version 1 with another epoch and seq; the body is not touched. Raises: CodecError."""
    header, codec, crc, payload_at = _read_header(message)
    _require_stamp(epoch, seq, _SEQ_MAX)
    first = header.kind << 4 | VERSION
    return _HEADER.pack(first, codec, epoch, seq, header.raw_len, crc) + message[payload_at:]


def chain(message: bytes, *, epoch: int, seq: int, link: bytes) -> bytes:
    """Return the message in version 2, stamped and linked to the one before it in its lane.

    Args:
        message: an envelope of either version; its body is not touched.
        epoch: of the ledger, from 1.
        seq: from 1, at most `CHAINED_SEQ_MAX`.
        link: `hash_of` the message before it, `NO_LINK` where there is none or it is not known.

    Raises:
        CodecError: `stamp` where epoch, seq or link do not fit, and whatever `peek` raises.
    """
    header, codec, crc, payload_at = _read_header(message)
    _require_stamp(epoch, seq, CHAINED_SEQ_MAX)
    if len(link) != HASH_BYTES:
        raise CodecError(f"a link of {len(link)} bytes: a hash has {HASH_BYTES}", "stamp")
    size = header.raw_len - 1
    head = _CHAINED.pack(
        header.kind << 4 | CHAINED, codec, epoch, seq & 0xFFFF_FFFF, seq >> 32,
        size & 0xFFFF, size >> 16, crc, link,
    )  # fmt: skip
    return head + message[payload_at:]


def payload_of(message: bytes) -> int:
    """Return where the payload of a message begins. Raises: CodecError, as `peek`."""
    return _read_header(message)[3]


def is_chained(message: bytes) -> bool:
    """Say whether a message that `peek` accepts is of version 2."""
    return message[0] & 0x0F == CHAINED


def link_of(message: bytes) -> bytes:
    """Return the link of a message that `peek` accepts, empty in version 1; faster than `peek`."""
    return message[CHAINED_BYTES - HASH_BYTES : CHAINED_BYTES] if is_chained(message) else b""


def hash_of(subject: str, message: bytes) -> bytes:
    """Return the `HASH_BYTES` by which a message is known in its lane's chain.

    BLAKE2b over the subject as the vehicle has it, a zero byte, and the whole envelope, its link
    included: so a hash stands for all that came before as well.
    """
    return blake2b(subject.encode() + b"\0" + message, digest_size=HASH_BYTES).digest()


def _read_header(message: bytes) -> tuple[Header, int, int, int]:
    """Return the header, the codec, the crc, and where the payload begins."""
    if len(message) <= HEADER_BYTES:
        raise CodecError(f"{len(message)} bytes are too few for a message", "short")
    first = message[0]
    if first in _CHAINED_KINDS:
        if len(message) <= CHAINED_BYTES:
            raise CodecError(f"{len(message)} bytes are too few for a message", "short")
        _, codec, epoch, low, high, size, more, crc, link = _CHAINED.unpack_from(message)
        raw_len = (more << 16 | size) + 1
        header = Header(_CHAINED_KINDS[first], epoch, high << 32 | low, raw_len, link)
        payload_at = CHAINED_BYTES
    else:
        _, codec, epoch, seq, raw_len, crc = _HEADER.unpack_from(message)
        kind = _KINDS.get(first)
        if kind is None:
            if first & 0x0F not in (VERSION, CHAINED):
                raise CodecError(f"version {first & 0x0F} is unknown", "version")
            raise CodecError(f"kind {first >> 4} is unknown", "kind")
        header = Header(kind, epoch, seq, raw_len)
        payload_at = HEADER_BYTES
    if codec > DICTIONARY:
        raise CodecError(f"codec {codec} is unknown", "codec")
    if not 1 <= header.raw_len <= BODY_BYTES_MAX:
        raise CodecError(f"a body of {header.raw_len} bytes is outside 1..{BODY_BYTES_MAX}", "size")
    return header, codec, crc, payload_at


def _require_stamp(epoch: int, seq: int, seq_max: int) -> None:
    if not (0 <= epoch <= _EPOCH_MAX and 0 <= seq <= seq_max):
        raise CodecError(f"epoch {epoch} or seq {seq} does not fit the header", "stamp")
