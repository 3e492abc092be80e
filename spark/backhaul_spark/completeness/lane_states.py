"""Count, per device and lane, the messages that the points table holds and misses. No Spark.

The coverage table has the ranges that are held; receipts say which of the missing ones will never
come, and why. What lies after the highest sequence held is unknown here: the hub's own continuity
knows what a device still owes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_codec.ranges import RangeSet
from backhaul_spark.ingest.coverage import Coverage, LaneKey
from backhaul_spark.tables.delta import dataset_of, open_coverage, open_table
from backhaul_spark.tables.schemas import RECEIPTS_TABLE


@dataclass(frozen=True, slots=True)
class LaneState:
    """The messages held of one lane of one incarnation of a device's ledger.

    `holes` are the ranges missing between 1 and `highest`; `explained` those of them that a
    receipt speaks for, with its reason.
    """

    device: str
    lane: str
    epoch: int
    messages: int
    points: int
    lowest: int
    highest: int
    holes: list[tuple[int, int]]
    explained: list[tuple[int, int, str]]

    @property
    def missing(self) -> int:
        """How many messages are missing and not explained."""
        unexplained = RangeSet(self.holes).total
        return unexplained - sum(high - low + 1 for low, high, _ in self.explained)

    @property
    def state(self) -> str:
        """`complete`, `explained` or `waiting`."""
        if not self.holes:
            return "complete"
        return "waiting" if self.missing else "explained"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it by name."""
        return asdict(self) | {"missing": self.missing, "state": self.state}


def lane_states(root: str, device: str | None = None) -> list[LaneState]:
    """Return the state of every lane, or those of one device, by device, lane and epoch.

    Raises:
        TableMissingError: nothing was ever ingested.
    """
    committed, held = open_coverage(root)
    coverage = _rows(held, committed, device)
    receipts = _rows(open_table(root, RECEIPTS_TABLE), committed, device)
    lanes = Coverage.from_table(coverage).lanes
    points: dict[LaneKey, int] = {}
    totals = coverage.group_by(["device", "lane", "epoch"]).aggregate([("points", "sum")])
    for row in totals.to_pylist():
        points[LaneKey(row["device"], row["lane"], row["epoch"])] = row["points_sum"]
    reasons: dict[LaneKey, list[tuple[int, int, str]]] = {}
    for row in receipts.sort_by("lo").to_pylist():
        key = LaneKey(row["device"], row["lane"], row["epoch"])
        reasons.setdefault(key, []).append((row["lo"], row["hi"], row["reason"]))
    return [
        _state(key, held, points[key], reasons.get(key, [])) for key, held in sorted(lanes.items())
    ]


def _state(
    key: LaneKey, held: RangeSet, points: int, reasons: list[tuple[int, int, str]]
) -> LaneState:
    lowest = next(iter(held))[0]
    explained: list[tuple[int, int, str]] = []
    told = RangeSet()
    for low, high, reason in reasons:
        for start, end in _overlap(held.holes(), low, high):
            # Two receipts may speak of the same sequence; the first one's reason stands.
            explained += [(a, b, reason) for a, b in told.holes(start, end)]
            told.add(start, end)
    return LaneState(
        *key,
        messages=held.total,
        points=points,
        lowest=lowest,
        highest=held.highest,
        holes=held.holes(),
        explained=explained,
    )


def _overlap(ranges: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    found = ((max(start, low), min(end, high)) for start, end in ranges)
    return [(start, end) for start, end in found if start <= end]


def _rows(table: DeltaTable, committed: int, device: str | None) -> pa.Table:
    wanted = pc.field("ingest") <= committed
    if device is not None:
        wanted = wanted & (pc.field("device") == device)
    return dataset_of(table).to_table(filter=wanted)
