"""Collect from the ingest tables the facts by which each device's hours are judged. Driver side, no Spark.

A fleet's marks of a month are more than fit into memory as Python's objects: so only the devices that
there is something to judge of are read, and made objects some at a time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_codec.assurance.completeness import (
    HourReport,
    LaneId,
    Mark,
    lane_records,
    report_hours,
)
from backhaul_codec.protocol.words import forked_by
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import IMPORT
from backhaul_spark.completeness.hashes import HashTable, Sought, repeats
from backhaul_spark.decode.chained import number, parted, partings, text
from backhaul_spark.errors import TableMissingError
from backhaul_spark.ingest.coverage import LaneKey
from backhaul_spark.tables.delta import by_device, dataset_of, open_table
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    ENDED_TABLE,
    FORKS_TABLE,
    MARKS_TABLE,
    RECEIPTS_TABLE,
    TableSpec,
)

# Marks that are Python's objects at a time, about 2 KB each with all that goes with them.
MARKS_AT_ONCE = 1 << 16
# How long before an hour the message may have come that was its lane's last: where a lane has said nothing for
# longer, the hash at the hour's end is left out.
LOOK_BACK = timedelta(days=8)


@dataclass(slots=True)
class Device:
    """The facts of one device in the tables, and which of them are new since the last run."""

    marks: list[Mark] = field(default_factory=list)
    held: dict[LaneId, RangeSet] = field(default_factory=dict)
    imports: dict[int, dict[int, int]] = field(default_factory=dict)
    """By hour (ns since 1970) and epoch of the lane of imports: up to which seq readings of it stand."""
    receipts: dict[LaneId, list[tuple[int, int, str]]] = field(default_factory=dict)
    ended: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    forked: dict[LaneId, int] = field(default_factory=dict)
    """Lanes in which two machines have written: the first seq of which that is known, 0 where none is."""
    touched: bool = False
    fork_is_new: bool = False
    old_epochs: set[int] = field(default_factory=set)
    newest_old_ns: int = 0
    """The newest mark that was known before."""
    oldest_new_ns: int | None = None
    """The oldest mark that was not."""

    @property
    def from_the_beginning(self) -> bool:
        """Whether the new facts may change hours that were judged already."""
        epochs = {id_.epoch for id_ in self.held if id_.lane != IMPORT}
        epochs |= {mark.epoch for mark in self.marks}
        epochs |= {epoch for epoch, _ in self.ended}
        between = self.oldest_new_ns is not None and self.oldest_new_ns < self.newest_old_ns
        return self.fork_is_new or (self.touched and (between or not epochs <= self.old_epochs))

    def fork(self, id_: LaneId, seq: int, *, new: bool) -> None:
        """Take in that a lane has forked. `seq`: of a message that both have written, 0: none is known."""
        known = self.forked.setdefault(id_, seq)
        self.forked[id_] = min(known or seq, seq or known)
        self.fork_is_new |= new

    def report_hours(self, hours: Iterable[int]) -> list[HourReport]:
        """Judge these hours, ns since 1970."""
        said = [*((mark.epoch, mark.lanes) for mark in self.marks), *self.ended]
        held = {id_: seqs for id_, seqs in self.held.items() if id_.lane != IMPORT}
        # Where nothing came twice nobody knows which messages of the other machine are not here.
        forked = {id_: seq or 1 for id_, seq in self.forked.items()}
        records = lane_records(held, self.receipts, said, forked)
        return report_hours(self.marks, records, hours, self._imported())

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


class IngestFacts:
    """The rows of the ingest tables up to one ingest, of which those after another one are new.

    Args:
        done: up to which ingest completeness reports were judged.
        target: up to which they are judged now.
        coverage: that table, as of `target`.
    """

    def __init__(self, root: str, done: int, target: int, coverage: DeltaTable) -> None:
        self._root, self._done, self._target = root, done, target
        self._coverage = coverage
        self._hashes = HashTable(root, target)
        self.forks: list[dict[str, Any]] = []
        """What was found by comparing, as the table `forks` has it: to be kept there."""

    def marked(self) -> set[str]:
        """Return the devices that have marks of their own; imported rows are judged as they come."""
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
        parted_now = partings(self._rows(COVERAGE_TABLE)).filter(new)
        found |= _names(parted_now, self._hashes.came_again(new))
        return found | _names(unknown) | (_names(fresh) & set(watched))

    def devices(
        self, wanted: Collection[str], open_hours: Mapping[str, Collection[int]]
    ) -> Iterator[tuple[str, Device]]:
        """Yield the facts of each wanted device that has marks, by name.

        Args:
            wanted: names.
            open_hours: by device the hours (ns since 1970) that were judged and may become others.
        """
        if not wanted:
            return
        of_wanted = pc.field("device").isin(pa.array(sorted(wanted), pa.string()))
        others = {
            spec: self._rows(spec, of_wanted)
            for spec in (COVERAGE_TABLE, RECEIPTS_TABLE, ENDED_TABLE, FORKS_TABLE)
        }
        for marks in by_device(self._rows(MARKS_TABLE, of_wanted), MARKS_AT_ONCE):
            names = marks.column("device").unique()
            parts = {
                spec: rows.filter(pc.is_in(rows.column("device"), value_set=names))
                for spec, rows in others.items()
            }
            devices = self._gathered(parts | {MARKS_TABLE: marks})
            self._compare_repeats(devices)
            self._compare_marks(devices, open_hours)
            yield from sorted(devices.items())

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
            device, lanes = of(row, row["old"]), json.loads(row["lanes"])
            device.ended.append((row["old"], lanes))
            known = {id_.epoch for id_ in device.held}
            for epoch in forked_by(row["old"], row["why"], known):
                for lane in lanes:  # what is held may all be one machine's
                    device.fork(LaneId(lane, epoch), 0, new=row["ingest"] > self._done)
        for row in partings(parts[COVERAGE_TABLE]).to_pylist():
            id_ = LaneId(row["lane"], row["epoch"])
            of(row).fork(id_, 0, new=row["ingest"] > self._done)
        for row in parts[FORKS_TABLE].to_pylist():
            # One of a run that did not live to judge by it is new.
            id_ = LaneId(row["lane"], row["epoch"])
            of(row).fork(id_, row["seq"], new=row["ingest"] > self._done)
        for row in _in_order(parts[MARKS_TABLE]):
            device = of(row, row["epoch"])
            lanes = json.loads(row["lanes"])
            if IMPORT in lanes:
                epochs = device.imports.setdefault(row["time_ns"], {})
                epochs[row["epoch"]] = max(epochs.get(row["epoch"], 0), lanes[IMPORT])
                continue
            chain = json.loads(row["chain"] or "{}")
            device.marks.append(
                Mark(row["time_ns"], row["epoch"], row["seq"], lanes, row["why"], chain)
            )
            if row["ingest"] <= self._done:
                device.newest_old_ns = max(device.newest_old_ns, row["time_ns"])
            else:
                oldest = device.oldest_new_ns
                device.oldest_new_ns = min(oldest or row["time_ns"], row["time_ns"])
        return devices

    def _compare_repeats(self, devices: dict[str, Device]) -> None:
        """Find messages that came with two contents, since the last run or ever."""
        ever = [name for name, device in devices.items() if device.from_the_beginning]
        of_these = (pc.field("ingest") > self._done) | pc.field("device").isin(
            pa.array(ever, pa.string())
        )
        of_these &= pc.field("device").isin(pa.array(sorted(devices), pa.string()))
        again = repeats(self._hashes.came_again(of_these))
        sought = {
            key: Sought(np.union1d(each.seqs, np.maximum(each.seqs - 1, 1)))
            for key, each in again.items()
        }
        self._hashes.find(sought)
        for key, each in again.items():
            two = parted(sought[key].of(each.seqs), each.hashes)
            if two.any():
                # Above the first message that differs the other machine's chain is another one.
                lowest = int(each.seqs[two].min())
                at = two & (each.seqs == lowest)
                links = sought[key].of(each.seqs[at] - 1)
                sure = lowest == 1 or bool(((links != 0) & (links == each.links[at])).all())
                self._found(devices[key.device], key, lowest if sure else 1)

    def _compare_marks(
        self, devices: dict[str, Device], open_hours: Mapping[str, Collection[int]]
    ) -> None:
        """Replace the hashes from a vehicle's marks by the hashes of the messages held."""
        wanted: dict[LaneKey, set[int]] = {}
        since_ns: list[int] = []
        for name, device in devices.items():
            from_ns = min([device.newest_old_ns, *open_hours.get(name, ())])
            if device.from_the_beginning:
                from_ns = 0
            marks = [mark for mark in device.marks if mark.chain and mark.time_ns >= from_ns]
            since_ns += [mark.time_ns for mark in marks]
            for mark in marks:
                for lane in mark.chain.keys() & mark.lanes.keys():
                    key = LaneKey(name, lane, mark.epoch)
                    wanted.setdefault(key, set()).add(mark.lanes[lane])
        sought = {key: Sought(np.array(sorted(seqs))) for key, seqs in wanted.items()}
        if sought:
            oldest = datetime.fromtimestamp(min(since_ns) / 1e9, UTC) - LOOK_BACK
            self._hashes.find(sought, oldest.date())
        held = {
            key: dict(zip(each.seqs.tolist(), each.found.tolist(), strict=True))
            for key, each in sought.items()
        }
        anew: dict[str, Device] = {}
        for name, device in devices.items():
            from_the_beginning = device.from_the_beginning
            marks = [self._compared(name, device, mark, held) for mark in device.marks]
            if device.from_the_beginning and not from_the_beginning:
                anew[name] = device  # all of its hours are judged again, so all hashes are wanted
            else:
                device.marks = marks
        if anew:
            self._compare_marks(anew, {})

    def _compared(
        self, name: str, device: Device, mark: Mark, held: Mapping[LaneKey, Mapping[int, int]]
    ) -> Mark:
        chain = {}
        for lane, said in mark.chain.items():
            key, seq = LaneKey(name, lane, mark.epoch), mark.lanes.get(lane, 0)
            own = held.get(key, {}).get(seq, 0)
            if own:
                chain[lane] = text(own)
                if parted(np.array([own]), np.array([number(said)])).any():
                    self._found(device, key, 0)
        return replace(mark, chain=chain)

    def _found(self, device: Device, key: LaneKey, seq: int) -> None:
        id_ = LaneId(key.lane, key.epoch)
        known = device.forked.get(id_)
        if known is None or (seq and not 0 < known <= seq):
            device.fork(id_, seq, new=True)
            self.forks.append({**key._asdict(), "seq": seq, "ingest": self._target})

    def _rows(
        self, spec: TableSpec, wanted: Any = None, columns: list[str] | None = None
    ) -> pa.Table:
        so_far = pc.field("ingest") <= self._target
        where = so_far if wanted is None else so_far & wanted
        try:
            table = self._coverage if spec is COVERAGE_TABLE else open_table(self._root, spec)
        except TableMissingError:
            if spec is not FORKS_TABLE:  # made by the first run that finds one
                raise
            return FORKS_TABLE.schema.empty_table()
        return dataset_of(table, spec).to_table(columns=columns, filter=where)


def _names(*tables: pa.Table) -> set[str]:
    return {name for rows in tables for name in rows.column("device").unique().to_pylist()}


def _in_order(rows: pa.Table) -> list[dict[str, Any]]:
    order = [(name, "ascending") for name in ("ingest", "lo") if name in rows.column_names]
    found: list[dict[str, Any]] = rows.sort_by(order).to_pylist()
    return found
