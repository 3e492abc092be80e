"""Open the envelopes of many small messages, their headers read together."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backhaul_codec.compression import DEFLATE, decompress
from backhaul_codec.envelope import HEADER_BYTES, VERSION
from backhaul_codec.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_codec.frame_columns import Array
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
    long = [index for index in indices if len(messages[index]) > HEADER_BYTES]
    headers = np.frombuffer(b"".join([messages[i][:HEADER_BYTES] for i in long]), _HEADER)
    small = (headers["first"] == (kind << 4 | VERSION)) & (headers["codec"] <= DEFLATE)
    small &= (headers["raw_len"] >= 1) & (headers["raw_len"] <= BODY_BYTES_MAX)
    if np.count_nonzero(small) < fewest:
        return None
    message, headers = np.array(long, np.int64)[small], headers[small]
    some = [messages[index] for index in message.tolist()]
    said = (headers[name].tolist() for name in ("codec", "raw_len", "crc"))
    bodies = list(map(_body, some, *said))
    whole = np.array([body is not None for body in bodies], np.bool_)
    if not whole.any():
        return None
    return Opened(message[whole], headers[whole], [body for body in bodies if body is not None])


def _body(message: bytes, codec: int, raw_len: int, crc: int) -> bytes | None:
    try:
        body = decompress(memoryview(message)[HEADER_BYTES:], codec, raw_len)
    except CodecError:
        return None
    return body if zlib.crc32(body) == crc else None
