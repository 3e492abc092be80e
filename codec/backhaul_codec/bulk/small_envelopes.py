"""Open the envelopes of many small messages, their headers read together."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backhaul_codec.errors import CodecError
from backhaul_codec.wire.compression import DEFLATE, decompress
from backhaul_codec.wire.envelope import CHAINED, CHAINED_BYTES, HEADER_BYTES, VERSION

if TYPE_CHECKING:
    from backhaul_codec.bulk.frame_columns import Array
    from backhaul_codec.points import Kind

# A larger body is as well read alone: its points weigh more than its fields. And no texts of so many
# points (a byte each at least) come to EXPANDED_BYTES_MAX, so nobody has to count them.
BODY_BYTES_MAX = 1 << 16
# Of fewer messages each is as well read alone.
FEWEST = 64

_HEADER = np.dtype(
    {
        "names": ["first", "codec", "epoch", "seq", "raw_len", "crc"],
        "formats": ["u1", "u1", "<u4", "<u8", "<u4", "<u4"],
    }
)
_CHAINED = np.dtype(
    {
        "names": ["first", "codec", "epoch", "low", "high", "size", "more", "crc"],
        "formats": ["u1", "u1", "<u4", "<u4", "u1", "<u2", "u1", "<u4"],
        "itemsize": CHAINED_BYTES,
    }
)


class Opened(NamedTuple):
    """Hold opened bodies: which message each is of, and the headers of these."""

    message: Array
    headers: Array
    bodies: list[bytes]


def open_small(
    messages: Sequence[bytes], indices: Sequence[int], kind: Kind, fewest: int
) -> Opened | None:
    """Return the bodies of those messages at `indices` that are small, of a kind, and by their crc whole.

    None: there are fewer than `fewest`, or none. Nothing that is left out is known to be bad.
    """
    long = [index for index in indices if len(messages[index]) > CHAINED_BYTES]
    headers = _headers(b"".join([messages[i][:CHAINED_BYTES] for i in long]), kind)
    small = (headers["first"] == (kind << 4 | VERSION)) & (headers["codec"] <= DEFLATE)
    small &= (headers["raw_len"] >= 1) & (headers["raw_len"] <= BODY_BYTES_MAX)
    if np.count_nonzero(small) < fewest:
        return None
    message, headers = np.array(long, np.int64)[small], headers[small]
    some = [messages[index] for index in message.tolist()]
    said = (headers[name].tolist() for name in ("codec", "raw_len", "crc"))
    payloads = [CHAINED_BYTES if each[0] & 0x0F == CHAINED else HEADER_BYTES for each in some]
    bodies = list(map(_body, some, payloads, *said))
    whole = np.array([body is not None for body in bodies], np.bool_)
    if not whole.any():
        return None
    return Opened(message[whole], headers[whole], [body for body in bodies if body is not None])


def _headers(heads: bytes, kind: Kind) -> Array:
    """Return headers of version 1 as they are, those of version 2 put into the same fields.

    Args:
        heads: the first `CHAINED_BYTES` of each message, end to end.
        kind: what messages of version 2 must be to be put there.
    """
    chained = np.frombuffer(heads, _CHAINED)
    raw = np.frombuffer(heads, np.uint8).reshape(-1, CHAINED_BYTES)
    headers = raw[:, :HEADER_BYTES].copy().view(_HEADER).reshape(-1)
    two = chained["first"] == (kind << 4 | CHAINED)
    some = chained[two]
    headers["first"][two] = kind << 4 | VERSION
    headers["seq"][two] = some["low"].astype(np.uint64) | some["high"].astype(
        np.uint64
    ) << np.uint64(32)
    headers["raw_len"][two] = (
        some["size"].astype(np.uint32) | some["more"].astype(np.uint32) << np.uint32(16)
    ) + np.uint32(1)
    headers["crc"][two] = some["crc"]
    return headers


def _body(message: bytes, payload_at: int, codec: int, raw_len: int, crc: int) -> bytes | None:
    try:
        body = decompress(memoryview(message)[payload_at:], codec, raw_len)
    except CodecError:
        return None
    return body if zlib.crc32(body) == crc else None
