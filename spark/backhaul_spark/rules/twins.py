"""The memory of one bucket of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import cbor2
import numpy as np

from backhaul_codec.state.merge import Head, join
from backhaul_spark.arrays import Ints
from backhaul_spark.decode.sample_batch import HeadWord, device_hash, hashes
from backhaul_spark.rules.repeats import lane_table
from backhaul_spark.rules.statistics import CURVE, SERIES
from backhaul_spark.rules.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backhaul_spark.rules.plan import Plan
    from backhaul_spark.rules.rule import Rule

# `stored_ns`: of its newest message; `shown_ns`: when its last snapshot was taken; `untimely`: points
# whose time cannot be true.
DEVICE = np.dtype([("stored_ns", "i8"), ("shown_ns", "i8"), ("untimely", "u4")])


def of_rule(rule: Rule) -> str:
    """Name the section of a rule's own fields."""
    return f"rule:{rule.name}"


def times_of(rule: Rule) -> str:
    """Name the section with the time of the newest sample that a rule had of each signal."""
    return f"times:{rule.name}"


def stored_of(rule: Rule) -> str:
    """Name the section with the time at which the newest sample of a rule's replay was stored."""
    return f"stored:{rule.name}"


class Twins:
    """The state of one bucket: tables of numbers, and all other fields.

    `devices`: a row each. `late`: rules' fields once more, for devices of which older samples come
    after newer ones. `lanes`: see continuity/repeats.py. `names`: hash to device. `heads`: config points, also of
    devices that were not heard of yet; `waiting`: those that were stored after what was taken in.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        rules = {}
        for spoken in plan.rules:
            rules[of_rule(spoken.rule)] = np.zeros(1, spoken.rule.state)
            times = np.dtype([(name, "i8") for name in spoken.signals] or [("none", "i1")])
            rules[times_of(spoken.rule)] = np.zeros(1, times)
        blanks: dict[str, NDArray[Any]] = {"device": np.zeros(1, DEVICE), **rules}
        blanks |= {str(series): np.zeros(1, SERIES) for series in plan.statistics}
        blanks["curve"] = np.zeros(1, CURVE)
        blanks["heads"] = np.zeros(1, np.dtype([(str(head), "f8") for head in plan.heads]))
        for head in plan.heads:
            blanks["heads"][str(head)] = np.nan
        self.devices = Table(blanks)
        replays = {stored_of(one.rule): np.zeros(1, np.dtype([("ns", "i8")])) for one in plan.rules}
        self.late = Table(rules | replays | {"device": np.zeros(1, DEVICE)})
        self.lanes = lane_table()
        self.names: dict[int, str] = {}
        self.heads: dict[tuple[str, str], Head] = {}
        self.waiting: list[HeadWord] = []
        self.names_changed = False
        # When the hub said last that it looks who is there. Not kept: who takes over waits for the next word.
        self.watched_ns = 0

    def rows(self, keys: NDArray[np.uint64], devices: Sequence[str]) -> NDArray[np.intp]:
        """Return the rows of devices, new ones with the configuration from before they came.

        `keys`: (n,) uint64, hashes of devices; the result is (n,) intp.
        """
        new = [name for name in devices if device_hash(name) not in self.names]
        if new:
            self.names |= {device_hash(name): name for name in new}
            self.names_changed = True
        before = self.devices.keys
        rows = self.devices.rows(keys)
        if self.devices.keys is not before:
            # Of the rows that were made: a name may have been known for long.
            for key in np.setdiff1d(self.devices.keys, before, assume_unique=True).tolist():
                for head in self._plan.heads:
                    self._apply(self.names[key], str(head))
        return rows

    def due(self, words: Sequence[HeadWord], until_ns: int, newest_ns: Ints) -> list[HeadWord]:
        """Return the config points that count by now, in the order in which they were stored; keep the others.

        All that was stored up to `until_ns` has been taken in. `newest_ns` is (devices,) int64, ns since 1970: when each
        one's newest message of this batch was stored, 0 for no message.
        """
        found: list[HeadWord] = []
        waiting: list[HeadWord] = []
        for word in (*self.waiting, *words):
            since_ns, _ = word.since
            [row] = self.devices.find(hashes([word.device]))
            due = since_ns <= until_ns or (row >= 0 and since_ns <= newest_ns[row])
            (found if due else waiting).append(word)
        if waiting or self.waiting:
            self.waiting, self.names_changed = waiting, True
        return sorted(found, key=lambda word: word.since)

    def hear(self, word: HeadWord) -> int | None:
        """Merge a config point: the newest stays, in any order of arrival (docs/wire-format.md).

        Returns:
            The row of `devices` in which it has changed something; None for nothing.
        """
        series = self.series_of(word)
        point = Head(word.time_ns, word.origin, word.value, word.tombstone)
        before = self.heads.get((word.device, series))
        head = point if before is None else join(before, point)
        if head is before:
            return None
        self.heads[word.device, series] = head
        self.names_changed = True
        return self._apply(word.device, series)

    def series_of(self, word: HeadWord) -> str:
        """Name the series of a config point."""
        return str(self._plan.heads[word.series])

    def _apply(self, device: str, series: str) -> int | None:
        head = self.heads.get((device, series))
        [row] = self.devices.find(hashes([device]))
        if head is not None and row >= 0:
            number = isinstance(head.value, float | int) and not head.deleted
            # Nor is infinity a limit: its command would be no JSON.
            value = float(head.value) if number else np.nan  # type: ignore[arg-type]
            self.devices["heads"][series][row] = value if np.isfinite(value) else np.nan
            return int(row)
        return None

    def forget(self, before_ns: int) -> None:
        """Drop the devices, and lanes, of which nothing was stored since."""
        gone = self.devices["device"]["stored_ns"] < before_ns
        for key in self.devices.keys[gone].tolist():
            self.names.pop(key, None)
            self.names_changed = True
        self.devices.keep(~gone)
        self.lanes.keep(self.lanes["lane"]["stored_ns"] >= before_ns)

    @property
    def _tables(self) -> tuple[Table, ...]:
        return self.devices, self.late, self.lanes

    def pack(self) -> bytes:
        """Return all numbers, and settle them."""
        packed = cbor2.dumps([table.pack() for table in self._tables])
        self.settle()
        return packed

    def pack_changes(self) -> bytes:
        """Return the numbers that changed since they were settled, and settle them; b"" for none."""
        changes = [table.pack_changes() for table in self._tables]
        return cbor2.dumps(changes) if any(changes) else b""

    def apply(self, changes: bytes) -> None:
        """Apply the result of `pack_changes`; the caller calls `settle`."""
        for table, changed in zip(self._tables, cbor2.loads(changes), strict=True):
            table.apply(changed)

    def settle(self) -> None:
        """Have `pack_changes` count from here."""
        for table in self._tables:
            table.settle()

    def pack_names(self) -> bytes:
        """Return the rest, which seldom changes (`names_changed`)."""
        heads = [
            [*key, head.time, head.origin, head.value, head.tombstone]
            for key, head in self.heads.items()
        ]
        return cbor2.dumps([list(self.names.values()), heads, [astuple(w) for w in self.waiting]])

    def unpack_numbers(self, numbers: bytes) -> None:
        """Restore the result of `pack`."""
        for table, packed in zip(self._tables, cbor2.loads(numbers), strict=True):
            table.unpack(packed)
        self.settle()

    def unpack_names(self, names: bytes) -> None:
        """Restore the result of `pack_names`."""
        known, heads, *rest = cbor2.loads(names)
        self.names = {device_hash(name): name for name in known}
        self.heads = {(h[0], h[1]): Head(h[2], h[3], h[4], h[5]) for h in heads}
        # A checkpoint of a version before has none that wait.
        self.waiting = [HeadWord(*word) for word in (rest[0] if rest else [])]
        self.names_changed = False
