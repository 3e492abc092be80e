"""Decode messages together and one by one, and compare to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec import CodecError, check, decode
from backhaul_codec.bulk.columns import Rejected, decode_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NEVER = 1 << 30


def _bits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that is equal only where every bit of a double is."""
    place = batch.schema.get_field_index("f64")
    return batch.set_column(place, "f64", batch.column("f64").view(pa.int64()))


def decode_both(messages: Sequence[bytes], subjects: Sequence[str] | None = None) -> list[Rejected]:
    """Decode together and one by one, and return what both refuse."""
    found = []
    for together_min in (1, _NEVER):
        rejected: list[Rejected] = []
        batch = decode_columns(
            messages, subjects=subjects, rejected=rejected, together_min=together_min
        )
        batch.validate(full=True)
        found.append((_bits(batch), rejected))
    (together, refused), (alone, refused_alone) = found
    assert refused == refused_alone
    assert together.equals(alone)
    return refused


def changed(body: bytes) -> Iterator[bytes]:
    """Yield the body with each byte changed in many ways, left out, or said twice."""
    for at in range(len(body)):
        for byte in {body[at] ^ flip for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255)} | {0, 0x1B}:
            yield body[:at] + bytes([byte]) + body[at + 1 :]
        yield body[:at] + body[at + 1 :]
        yield body[: at + 1] + body[at:]
        yield body[:at]


def outcome(message: bytes) -> str:
    """Return the code of the one error of all readers, or "" where all accept the message."""
    codes = set()
    for read in (decode, check):
        try:
            read(message)
        except CodecError as error:
            codes.add(error.code)
        else:
            codes.add("")
    rejected: list[Rejected] = []
    decode_columns([message], rejected=rejected)
    codes.add(rejected[0].code if rejected else "")
    assert len(codes) == 1, codes
    return codes.pop()
