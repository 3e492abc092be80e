"""The account of a run: what was acknowledged on the vehicles against what the history holds.

Kept from outside: the publishers write down what an agent told them is kept, and the history is
read with a library that is not ours.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from backhaul_codec import Opaque, Point


class Reading(NamedTuple):
    """What makes two readings the same one, its value to the last bit."""

    device: str
    node: str
    type: str
    key: str
    time_ns: int
    value: bytes


@dataclass(slots=True)
class Verdict:
    """One device's line of the account."""

    acknowledged: int = 0
    in_history: int = 0
    missing: int = 0
    doubled: int = 0

    @property
    def sound(self) -> bool:
        """Whether every acknowledged reading is there exactly once."""
        return self.missing == 0 and self.doubled == 0


@dataclass(slots=True)
class Account:
    """What was acknowledged, per device."""

    acknowledged: Counter[Reading] = field(default_factory=Counter)
    per_device: Counter[str] = field(default_factory=Counter)

    def kept(self, device: str, points: Iterable[Point]) -> None:
        """Write down that an agent has acknowledged these points."""
        for point in points:
            self.acknowledged[reading_of(device, point)] += 1
            self.per_device[device] += 1

    def close(self, table: Path) -> dict[str, Verdict]:
        """Compare with the points table; device to its verdict."""
        history = Counter(_read_history(table))
        verdicts: dict[str, Verdict] = {}
        for reading, count in self.acknowledged.items():
            verdict = verdicts.setdefault(reading.device, Verdict())
            found = history.pop(reading, 0)
            verdict.acknowledged += count
            verdict.in_history += found
            verdict.missing += max(0, count - found)
            verdict.doubled += max(0, found - count)
        for reading, count in history.items():
            verdict = verdicts.setdefault(reading.device, Verdict())
            verdict.in_history += count
            verdict.doubled += count - 1
        return verdicts


def reading_of(device: str, point: Point) -> Reading:
    """Return the identity of a point of a device."""
    return Reading(device, point.node, point.type, point.key, point.time, _exact(point.value))


def _exact(value: float | str | bytes | Opaque) -> bytes:
    """Encode a value so that equal bytes mean equal type and equal bits."""
    match value:
        case float():
            return b"f" + struct.pack("<d", value)
        case int():
            return b"i" + struct.pack("<Q", value & 0xFFFF_FFFF_FFFF_FFFF)
        case str():
            return b"t" + value.encode()
        case bytes():
            return b"b" + value
        case Opaque():
            return b"o" + value.data


def _read_history(table: Path) -> Iterable[Reading]:
    from deltalake import DeltaTable

    from backhaul_spark.tables.delta import dataset_of

    columns = ["device", "node", "type", "key", "time_ns", "dtype"]
    values = ["value_f64", "value_i64", "value_text", "value_bytes"]
    rows = dataset_of(DeltaTable(table)).to_table(columns=columns + values)
    read = [rows.column(name).to_pylist() for name in columns + values]
    for device, node, type_, key, time_ns, dtype, f64, i64, text, data in zip(*read, strict=True):
        match dtype:
            case 1:
                value = b"f" + struct.pack("<d", f64)
            case 2 | 3:
                value = b"i" + struct.pack("<Q", i64 & 0xFFFF_FFFF_FFFF_FFFF)
            case 4:
                value = b"t" + text.encode()
            case 5:
                value = b"b" + data
            case _:
                value = b"o" + (text.encode() if text is not None else data)
        yield Reading(device, node, type_, key, time_ns, value)
