"""Bodies of messages, with any field in the place of a good one."""

from __future__ import annotations

from typing import Any

import cbor2

from backhaul_codec import (
    Kind,
    Opaque,
    Point,
    encode_frame,
)
from backhaul_codec.wire.envelope import seal, unseal

NOON = 1_700_000_000_000_000_000
MIB = 1 << 20

POINTS = [
    Point("n", "soc", NOON, 81.2),
    Point("n", "soc", NOON + 10**9, 81.5, tombstone=1),
    Point("n", "f32", NOON + 10**9, 1.0000001192092896),
    Point("n", "f64", NOON + 10**9, 0.1 + 0.2, key="k"),
    Point("n", "count", NOON + 10**9, 2**63, origin="hub"),
    Point("n", "count", NOON + 10**9, 2**63 + 1000),
    Point("n", "text", NOON + 10**9, "Ä"),
    Point("n", "json", NOON + 10**9, Opaque(6, b"{}")),
    Point("n", "bytes", NOON + 10**9, b"\xff"),
]


def sealed(body: bytes, kind: Kind = Kind.FRAME) -> bytes:
    return seal(body, kind, 1, 1, "none")


def fields(**changes: Any) -> dict[int, Any]:
    """Return the map of a good frame with some fields replaced, or left out where `...`."""
    _, body = unseal(encode_frame(POINTS, epoch=1, seq=1))
    good: dict[int, Any] = cbor2.loads(body)
    for name, value in changes.items():
        number = int(name[1:])
        good[number] = value
        if value is ...:
            del good[number]
    return good
