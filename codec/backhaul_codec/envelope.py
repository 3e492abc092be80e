"""Seal a body into an envelope and open it again.

The fixed header, little-endian, 22 bytes: version and kind, codec, epoch, seq, raw_len, crc32.
Epoch and seq stand outside the body, so that a hub proves continuity without inflating anything,
and an agent stamps a stored message again without encoding it again.
"""

import zlib
from struct import Struct

from backhaul_codec.compression import CODEC_IDS, compress, decompress
from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind

VERSION = 1
BODY_BYTES_MAX = 16 << 20

_HEADER = Struct("<BBIQII")
_STAMP = Struct("<IQ")
CODEC_OFFSET, _STAMP_OFFSET = 1, 2
HEADER_BYTES = _HEADER.size
_EPOCH_MAX, _SEQ_MAX = 2**32 - 1, 2**64 - 1
_KINDS = {kind << 4 | VERSION: kind for kind in Kind}


def seal(body: bytes, kind: Kind, epoch: int, seq: int, compression: str) -> bytes:
    """Compress a body and put the header before it. Raises: CodecError (`size`, `stamp`, `codec`)."""
    if len(body) > BODY_BYTES_MAX:
        raise CodecError(
            f"a body of {len(body)} bytes is over the limit of {BODY_BYTES_MAX}: send fewer points",
            "size",
        )
    codec = CODEC_IDS.get(compression)
    if codec is None:
        raise CodecError(f"compression {compression!r} is not one of {list(CODEC_IDS)}", "codec")
    _require_stamp(epoch, seq)
    header = _HEADER.pack(kind << 4 | VERSION, codec, epoch, seq, len(body), zlib.crc32(body))
    return header + compress(body, codec)


def unseal(message: bytes) -> tuple[Header, bytes]:
    """Return the header and the body, its length and crc proven. Raises: CodecError."""
    kind, codec, epoch, seq, raw_len, crc = _read_header(message)
    body = decompress(memoryview(message)[HEADER_BYTES:], codec, raw_len)
    if zlib.crc32(body) != crc:
        raise CodecError("the crc of the body is wrong", "crc")
    return Header(kind, epoch, seq, raw_len), body


def peek(message: bytes) -> Header:
    """Read the fixed header alone; the body is neither inflated nor proven. Raises: CodecError."""
    kind, _, epoch, seq, raw_len, _ = _read_header(message)
    return Header(kind, epoch, seq, raw_len)


def restamp(message: bytes, *, epoch: int, seq: int) -> bytes:
    """Return the message with another epoch and seq; the body is not touched. Raises: CodecError."""
    _read_header(message)
    _require_stamp(epoch, seq)
    stamp = _STAMP.pack(epoch, seq)
    return message[:_STAMP_OFFSET] + stamp + message[_STAMP_OFFSET + len(stamp) :]


def _read_header(message: bytes) -> tuple[Kind, int, int, int, int, int]:
    if len(message) <= HEADER_BYTES:
        raise CodecError(f"{len(message)} bytes are too few for a message", "short")
    first, codec, epoch, seq, raw_len, crc = _HEADER.unpack_from(message)
    kind = _KINDS.get(first)
    if kind is None:
        if first & 0x0F != VERSION:
            raise CodecError(f"version {first & 0x0F} is unknown", "version")
        raise CodecError(f"kind {first >> 4} is unknown", "kind")
    if codec > 2:
        raise CodecError(f"codec {codec} is unknown", "codec")
    if not 1 <= raw_len <= BODY_BYTES_MAX:
        raise CodecError(f"a body of {raw_len} bytes is outside 1..{BODY_BYTES_MAX}", "size")
    return kind, codec, epoch, seq, raw_len, crc


def _require_stamp(epoch: int, seq: int) -> None:
    if not (0 <= epoch <= _EPOCH_MAX and 0 <= seq <= _SEQ_MAX):
        raise CodecError(f"epoch {epoch} or seq {seq} does not fit u32 and u64", "stamp")
