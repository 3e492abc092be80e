"""What the vehicles of the golden world say: by dice, the same each time."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

from backhaul_codec import Opaque, Point, chain, encode_frame, encode_point, hash_of, restamp

if TYPE_CHECKING:
    import random

NOON = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
SECOND = 10**9
JSON = 6


def values(dice: random.Random, number: int) -> list[Point]:
    """Return ten readings of one node, of all kinds of values."""
    at = NOON + number * 8 * SECOND
    return [
        Point("battery", "soc", at, dice.randrange(800) / 8),
        Point("battery", "soc", at + SECOND, dice.randrange(800) / 8),
        Point("battery", "volts", at + SECOND, dice.uniform(3.1, 4.2), key=f"cell {number % 3}"),
        Point("battery", "temp", at + SECOND, float32(dice.uniform(-20, 60))),
        Point("battery", "odd", at + SECOND, dice.choice([math.nan, math.inf, -0.0, 1e300])),
        Point("battery", "cycles", at + 2 * SECOND, number),
        Point("battery", "count", at + 2 * SECOND, 2**63 + number),
        Point("battery", "note", at + 3 * SECOND, f"Ärger {dice.randrange(9)}"),
        Point("battery", "raw", at + 3 * SECOND, dice.randbytes(dice.randrange(12))),
        Point("battery", "more", at + 4 * SECOND, Opaque(JSON, b'{"cell":%d}' % dice.randrange(9))),
    ]


def float32(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def raw_messages(dice: random.Random) -> list[tuple[str, bytes]]:
    """Return what a vehicle of former versions, and one of this, sent: with holes and words."""
    found = []
    for version, epoch in ((1, 71), (2, 72)):
        last: dict[str, bytes] = {}
        seqs = {"bulk": 0, "live": 0}
        for number in range(280):
            subject, lane = "f.battery", "bulk"
            points = values(dice, number)[: dice.randrange(1, 11)]
            compression = dice.choice(["none", "deflate"])
            body = encode_frame(points, epoch=0, seq=0, clock=number % 3, compression=compression)  # type: ignore[arg-type]
            if number % 4 == 1:
                subject, lane = "p.battery.limit.upper", "live"
                state = Point("battery", "limit", NOON + number, number / 8, key="upper")
                body = encode_point(state, epoch=0, seq=0)
            if number % 70 == 69:
                subject, lane = "e.mark", "live"
                said = {"epoch": epoch, "lanes": {name: seqs[name] for name in seqs}, "why": "hour"}
                body = word("mark", said, number)
            if number == 240:
                subject, lane = "e.receipt", "live"
                said = {
                    "lane": "bulk",
                    "epoch": epoch,
                    "lo": 30,
                    "hi": 33,
                    "reason": "evicted: age",
                }
                body = word("receipt", said, number)
            seqs[lane] += 1
            seq = seqs[lane]
            stamped = restamp(body, epoch=epoch, seq=seq)
            if version == 2:
                stamped = chain(body, epoch=epoch, seq=seq, link=last.get(lane, bytes(6)))
            last[lane] = hash_of(subject, stamped)
            if lane == "bulk" and (30 <= seq <= 33 or seq in (50, 60, 61)):
                continue
            found.append((subject, stamped))
    old = {"old": 71, "new": 72, "lanes": {"bulk": 20, "live": 9}, "why": "the ledger went back"}
    found.append(("e.epoch", restamp(word("epoch", old, 1), epoch=72, seq=99)))
    found.append(("f.battery", b"no message at all"))
    return found


def word(kind: str, said: dict[str, Any], number: int) -> bytes:
    data = Opaque(JSON, json.dumps(said).encode())
    return encode_point(Point("agent", kind, NOON + number * SECOND, data), epoch=0, seq=0)
