"""What the ingest tables hold of each device that certificates are judged by. Driver side, no Spark.

A fleet's marks of a month are more than fit into memory as Python's objects: so only the devices that
there is something to judge of are read, and made objects some at a time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.certificates import Certificate, LaneId, Mark, certify, lane_records
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import IMPORT
from backhaul_spark.rollup_plan import by_device
from backhaul_spark.schemas import (
    COVERAGE_TABLE,
    ENDED_TABLE,
    MARKS_TABLE,
    RECEIPTS_TABLE,
    TableSpec,
)
from backhaul_spark.tables import dataset_of, open_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from deltalake import DeltaTable

# Marks that are Python's objects at a time, about 2 KB each with all that goes with them.
MARKS_AT_ONCE = 1 << 16


@dataclass(slots=True)
class Device:
    """What the tables hold of one device, and which of it is new since the last run."""

    marks: list[Mark] = field(default_factory=list)
    held: dict[LaneId, RangeSet] = field(default_factory=dict)
    imports: dict[int, dict[int, int]] = field(default_factory=dict)
    """By hour (ns since 1970) and epoch of the lane of imports: up to which seq readings of it stand."""
    receipts: dict[LaneId, list[tuple[int, int, str]]] = field(default_factory=dict)
    ended: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    touched: bool = False
    old_epochs: set[int] = field(default_factory=set)
    newest_old_ns: int = 0
    """The newest mark that was known before."""
    oldest_new_ns: int | None = None
    """The oldest mark that was not."""

    @property
    def from_the_beginning(self) -> bool:
        """Whether what is new may change hours that were judged already."""
        epochs = {id_.epoch for id_ in self.held if id_.lane != IMPORT}
        epochs |= {mark.epoch for mark in self.marks}
        epochs |= {epoch for epoch, _ in self.ended}
        between = self.oldest_new_ns is not None and self.oldest_new_ns < self.newest_old_ns
        return self.touched and (between or not epochs <= self.old_epochs)

    def certify(self, hours: Iterable[int]) -> list[Certificate]:
        """Judge these hours, ns since 1970."""
        said = [*((mark.epoch, mark.lanes) for mark in self.marks), *self.ended]
        held = {id_: seqs for id_, seqs in self.held.items() if id_.lane != IMPORT}
        records = lane_records(held, self.receipts, said)
        return certify(self.marks, records, hours, self._imported())

    def _imported(self) -> dict[int, bool]:
        """Return the hours that readings were imported of, and whether all of these are held."""
        nothing = RangeSet()
        return {
            hour_ns: all(
                self.held.get(LaneId(IMPORT, epoch), nothing).contiguous >= seq
                for epoch, seq in epochs.items()
            )
            for hour_ns, epochs in self.imports.items()
        }


class Facts:
    """The rows of the ingest tables up to one ingest, of which those after another one are new.

    Args:
        root: the table root.
        done: up to which ingest certificates were judged.
        target: up to which they are judged now.
        coverage: that table, as of `target`.
    """

    def __init__(self, root: str, done: int, target: int, coverage: DeltaTable) -> None:
        self._root, self._done, self._target = root, done, target
        self._coverage = coverage

    def marked(self) -> set[str]:
        """Return the devices that have marks of their own; what was imported is judged when it comes."""
        imported = pc.starts_with(pc.field("lanes"), json.dumps({IMPORT: 0})[:-2])
        return _names(self._rows(MARKS_TABLE, ~imported, columns=["device"]))

    def news(self, watched: Collection[str]) -> set[str]:
        """Return the devices whose hours may be others now.

        Args:
            watched: those with hours that anything new of theirs may complete. Of the others marks,
                ended epochs, and epochs not heard of before count.
        """
        new = pc.field("ingest") > self._done
        found = _names(self._rows(MARKS_TABLE, new), self._rows(ENDED_TABLE, new))
        columns = ["device", "epoch"]
        heard = [self._rows(spec, new, columns) for spec in (COVERAGE_TABLE, RECEIPTS_TABLE)]
        fresh = pa.concat_tables(heard)
        unknown = fresh.join(
            self._rows(COVERAGE_TABLE, ~new, columns), columns, join_type="left anti"
        )
        return found | _names(unknown) | (_names(fresh) & set(watched))

    def devices(self, wanted: Collection[str]) -> Iterator[tuple[str, Device]]:
        """Yield what there is of those of the wanted devices that have marks, by name."""
        if not wanted:
            return
        of_wanted = pc.field("device").isin(pa.array(sorted(wanted), pa.string()))
        others = {
            spec: self._rows(spec, of_wanted)
            for spec in (COVERAGE_TABLE, RECEIPTS_TABLE, ENDED_TABLE)
        }
        for marks in by_device(self._rows(MARKS_TABLE, of_wanted), MARKS_AT_ONCE):
            names = marks.column("device").unique()
            parts = {
                spec: rows.filter(pc.is_in(rows.column("device"), value_set=names))
                for spec, rows in others.items()
            }
            yield from sorted(self._gathered(parts | {MARKS_TABLE: marks}).items())

    def _gathered(self, parts: dict[TableSpec, pa.Table]) -> dict[str, Device]:
        devices: dict[str, Device] = {}

        def of(row: dict[str, Any], *epochs: int) -> Device:
            device = devices.setdefault(row["device"], Device())
            if row["ingest"] > self._done:
                device.touched = True
            else:
                device.old_epochs.update(epochs)
            return device

        for row in _in_order(parts[COVERAGE_TABLE]):
            id_ = LaneId(row["lane"], row["epoch"])
            of(row, id_.epoch).held.setdefault(id_, RangeSet()).add(row["lo"], row["hi"])
        for row in _in_order(parts[RECEIPTS_TABLE]):
            id_ = LaneId(row["lane"], row["epoch"])
            told = of(row, id_.epoch).receipts.setdefault(id_, [])
            told.append((row["lo"], row["hi"], row["reason"]))
        for row in _in_order(parts[ENDED_TABLE]):
            of(row, row["old"]).ended.append((row["old"], json.loads(row["lanes"])))
        for row in _in_order(parts[MARKS_TABLE]):
            device = of(row, row["epoch"])
            lanes = json.loads(row["lanes"])
            if IMPORT in lanes:
                epochs = device.imports.setdefault(row["time_ns"], {})
                epochs[row["epoch"]] = max(epochs.get(row["epoch"], 0), lanes[IMPORT])
                continue
            device.marks.append(Mark(row["time_ns"], row["epoch"], row["seq"], lanes, row["why"]))
            if row["ingest"] <= self._done:
                device.newest_old_ns = max(device.newest_old_ns, row["time_ns"])
            else:
                oldest = device.oldest_new_ns
                device.oldest_new_ns = min(oldest or row["time_ns"], row["time_ns"])
        return devices

    def _rows(
        self, spec: TableSpec, wanted: Any = None, columns: list[str] | None = None
    ) -> pa.Table:
        so_far = pc.field("ingest") <= self._target
        where = so_far if wanted is None else so_far & wanted
        table = self._coverage if spec is COVERAGE_TABLE else open_table(self._root, spec)
        return dataset_of(table).to_table(columns=columns, filter=where)


def _names(*tables: pa.Table) -> set[str]:
    return {name for rows in tables for name in rows.column("device").unique().to_pylist()}


def _in_order(rows: pa.Table) -> list[dict[str, Any]]:
    order = [(name, "ascending") for name in ("ingest", "lo") if name in rows.column_names]
    found: list[dict[str, Any]] = rows.sort_by(order).to_pylist()
    return found
