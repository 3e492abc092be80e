"""The name of a recording: a hash of its rows' contents, independent of the file's name. Pure.

`source_of` names a recording by its mapping and its first row, so that it stays the same while rows are
appended. A `Chain` says what stood in all rows up to one: a recording that was changed, or another one
that begins alike, has another digest there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from backhaul_codec.recordings.mapping import Mapping
    from backhaul_codec.recordings.readers import Chunk

_DIGEST_BYTES = 16
_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode


def _said(row: Any) -> bytes:
    """Return the contents of a row; a time beyond 64 bits of ns is an integer beyond those."""
    try:
        return _encode(row)
    except OverflowError:
        return repr(row).encode()


class Chain:
    """The digest of a recording's rows, from the first one on."""

    def __init__(self, mapping: Mapping) -> None:
        self.rows = 0
        self._columns = mapping.columns()
        self._hash = hashlib.blake2b(
            msgspec.json.encode(mapping), digest_size=_DIGEST_BYTES, person=b"backhaul rows 1"
        )

    def advance(self, chunk: Chunk, to_row: int) -> None:
        """Take in the rows of a chunk that follow those taken in, up to a row, not included."""
        begin, end = self.rows - chunk.first_row, to_row - chunk.first_row
        if end <= begin:
            return
        columns = [chunk.columns[name][begin:end] for name in self._columns]
        for row in zip(*columns, strict=True):
            self._hash.update(_said(row))
        self.rows = to_row

    @property
    def digest(self) -> str:
        """Return the digest of all rows taken in, 32 hexadecimal digits."""
        return self._hash.hexdigest()


def source_of(mapping: Mapping, first: Chunk, *marks: str) -> str:
    """Return the name of the recording that begins with this chunk, 32 hexadecimal digits.

    Args:
        mapping: by which it is read.
        first: its first rows; one at least.
        marks: what else sets it apart from another.
    """
    row: list[Any] = [first.columns[name][0] for name in mapping.columns()]
    said = msgspec.json.encode(mapping) + _said([row, *marks])
    return hashlib.blake2b(said, digest_size=_DIGEST_BYTES, person=b"backhaul source1").hexdigest()
