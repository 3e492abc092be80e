"""The bytes that servers of NATS put on a leaf's link, unpacked: S2, as a stream of chunks (klauspost/compress, `s2`).

Only read; checksums are not looked at. S2 is Snappy and one thing more: a copy without an offset goes on at the offset
of the copy before.
"""

from __future__ import annotations

from typing import NamedTuple

_BEGIN = b"\xff\x06\x00\x00S2sTwO"
_COMPRESSED, _PLAIN = 0x00, 0x01
_HEAD_BYTES, _CRC_BYTES = 4, 4


class Piece(NamedTuple):
    """Bytes of the protocol, and how many the link carried for them."""

    data: bytes
    carried: int


class Unpacker:
    """One direction of one connection, which is plain until the servers begin to pack."""

    def __init__(self) -> None:
        self._packed = False
        self._waiting = bytearray()
        self._owed = 0

    def take(self, data: bytes) -> list[Piece]:
        """Take in what the link carried; return what can be read of it.

        Raises:
            ValueError: these are no chunks of S2.
        """
        self._waiting += data
        found = []
        if not self._packed:
            # No text of a login has such a byte.
            at = self._waiting.find(_BEGIN[:1])
            size = len(self._waiting) if at < 0 else at
            if size:
                found.append(Piece(bytes(self._waiting[:size]), size))
                del self._waiting[:size]
            self._packed = self._waiting.startswith(_BEGIN)
        while self._packed and len(self._waiting) >= _HEAD_BYTES:
            kind, size = self._waiting[0], int.from_bytes(self._waiting[1:4], "little")
            if len(self._waiting) < _HEAD_BYTES + size:
                break
            body = bytes(self._waiting[_HEAD_BYTES : _HEAD_BYTES + size])
            del self._waiting[: _HEAD_BYTES + size]
            self._owed += _HEAD_BYTES + size
            if kind in (_COMPRESSED, _PLAIN):
                body = body[_CRC_BYTES:]
                plain = unpack(body) if kind == _COMPRESSED else body
                found.append(Piece(plain, self._owed))
                self._owed = 0
            elif kind < 0x80:
                raise ValueError(f"no chunk of S2: {kind:#x}")
        return found


def unpack(block: bytes) -> bytes:
    """Return the content of a block. Raises: ValueError: it is none."""
    size, at = _varint(block)
    out, offset = bytearray(), 0
    while at < len(block):
        tag = block[at]
        kind, high = tag & 3, tag >> 2
        at += 1
        if kind == 0:
            length = high + 1
            if high >= 60:
                more = high - 59
                length = int.from_bytes(block[at : at + more], "little") + 1
                at += more
            out += block[at : at + length]
            at += length
            continue
        if kind == 1:
            length, near = (high & 7) + 4, (tag >> 5 << 8) | block[at]
            at += 1
            if near:
                offset = near
            else:
                # As at the last offset; longer ones have more bytes of length.
                length -= 4
                more = max(0, length - 4)
                base = {0: length, 1: 4, 2: 1 << 8, 3: 1 << 16}[more]
                length = base + int.from_bytes(block[at : at + more], "little") + 4
                at += more
        else:
            wide = 2 if kind == 2 else 4
            length, offset = high + 1, int.from_bytes(block[at : at + wide], "little")
            at += wide
        if not 0 < offset <= len(out):
            raise ValueError("a copy from before the block")
        for _ in range(length):
            out.append(out[-offset])
    if len(out) != size:
        raise ValueError(f"a block of {len(out)} bytes says that it has {size}")
    return bytes(out)


def _varint(data: bytes) -> tuple[int, int]:
    value = shift = 0
    for at, byte in enumerate(data, 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a block without a size")
