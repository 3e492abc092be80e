"""Valid frames that come to far more than they weigh, as a stolen vehicle may write them."""

from __future__ import annotations

import cbor2

from backhaul_codec.points import BYTES, FLOAT64, JSON, TEXT, Kind
from backhaul_codec.wire.envelope import seal
from backhaul_codec.wire.frame_fields import POINTS_MAX, Field

T0_NS = 1_767_225_600_000_000_000


def points_bomb(
    seq: int, *, points: int = POINTS_MAX, epoch: int = 1, node: str = "battery", t0_ns: int = T0_NS
) -> bytes:
    """One series of equal doubles at one time: below a kilobyte for 2**18 of them."""
    fields = _fields(points, node, t0_ns, [("soc", bytes((FLOAT64, 0, 1)))])
    fields |= {Field.BASES: [815], Field.COLUMNS: {0: bytes(points - 1)}}
    return _sealed(fields, epoch, seq)


def text_bomb(
    seq: int,
    *,
    copies: int = 400,
    size: int = 138_000,
    dtype: int = TEXT,
    epoch: int = 1,
    node: str = "battery",
    t0_ns: int = T0_NS,
) -> bytes:
    """One long text, JSON document or byte string, that every point refers to."""
    text = ('"' + "x" * (size - 2) + '"').encode()
    blob = text.decode() if dtype in (TEXT, JSON) else text
    fields = _fields(copies, node, t0_ns, [("note", bytes((dtype, 6, 0)))])
    fields |= {Field.COLUMNS: {6: bytes(copies)}, Field.BLOBS: [blob]}
    return _sealed(fields, epoch, seq)


def blob_bomb(seq: int, *, epoch: int = 1, t0_ns: int = T0_NS) -> bytes:
    """The same of bytes."""
    return text_bomb(seq, dtype=BYTES, epoch=epoch, t0_ns=t0_ns)


def series_bomb(seq: int, *, series: int = 60_000, epoch: int = 1, t0_ns: int = T0_NS) -> bytes:
    """As many series as a frame has room for, of a point each."""
    numbers = range(series)
    sid = bytes(n & 0xFF for n in numbers) + bytes(n >> 8 for n in numbers)
    named = [(f"s{n}", bytes((FLOAT64, 0, 0))) for n in numbers]
    fields = _fields(series, "battery", t0_ns, named) | {Field.SID: sid}
    fields |= {Field.BASES: [1] * series, Field.COLUMNS: {}}
    return _sealed(fields, epoch, seq)


def _fields(
    points: int, node: str, t0_ns: int, series: list[tuple[str, bytes]]
) -> dict[int, object]:
    return {
        Field.N: points,
        Field.T0: t0_ns,
        Field.UNIT: 1,
        Field.DT: bytes(points - 1),
        Field.SID: bytes(points),
        Field.TYPES: [name for name, _ in series],
        Field.KINDS: b"".join(kinds for _, kinds in series),
        Field.NODE: node,
    }


def _sealed(fields: dict[int, object], epoch: int, seq: int) -> bytes:
    body = cbor2.dumps({int(key): value for key, value in fields.items()})
    return seal(body, Kind.FRAME, epoch, seq, "deflate")
