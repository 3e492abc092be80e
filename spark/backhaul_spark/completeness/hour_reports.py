"""Judge the hours of every device in the table `certificates`. Driver side, without Spark.

What is judged, and by what rule, is backhaul_codec.assurance.completeness'; the hub judges by the same one.
Here the seqs that are held are those whose points are committed (coverage). An hour once complete
stays so, since the points table forgets nothing; so a run looks at the hours that are not complete,
and at those that have ended since. A device of which a new ledger, or a mark from between older
ones, has come is judged from its beginning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import write_deltalake

from backhaul_codec.assurance.completeness import (
    HOUR_NS,
    Ends,
    HourReport,
    Missing,
    Reasoned,
    hours_between,
)
from backhaul_runtime.clock import Clock
from backhaul_spark.completeness.facts import IngestFacts
from backhaul_spark.completeness.states import RUN_APP
from backhaul_spark.tables.delta import (
    commit_files,
    dataset_of,
    make_table,
    one_at_a_time,
    open_coverage,
    open_table,
    transactions,
)
from backhaul_spark.tables.schemas import (
    FORKS_TABLE,
    HOUR_REPORTS_TABLE,
)
from backhaul_spark.tables.superseded import STAMP_APP, Superseded, next_stamp_us, rows_known_at

# As written in the log of every table: it keeps its former name.
HOUR_REPORTS_APP = "backhaul-certificates"
RANGES_MAX = 100
"""Ranges that a row names; `missing` and `explained` count them all."""

_SAID = (
    *("state", "missing_ranges", "explained_ranges", "epochs", "why", "missing", "explained"),
    "chain",
)
_HOUR_US = HOUR_NS // 1000
_BUSY = "completeness", "another run has judged hours meanwhile"


@dataclass(frozen=True, slots=True)
class Judged:
    """The hours that one run judged, by kind, and the ingests it covered (after, up to)."""

    after_ingest: int
    ingest: int
    created: int = 0
    changed: int = 0


class HourReports:
    """Brings the completeness reports under a table root up to date.

    Raises:
        TablesBusyError: another run is at work.
    """

    def __init__(self, root: str, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._target, self._coverage = open_coverage(root)
        self._table = make_table(root, HOUR_REPORTS_TABLE)
        with one_at_a_time(self._root, *_BUSY):
            self._superseded = Superseded(root, self._table, HOUR_REPORTS_TABLE, RUN_APP, clock)

    def run(self) -> Judged:
        """Judge the hours that are due and commit the result.

        Raises:
            TablesBusyError: another run committed meanwhile. Its work stands.
        """
        done = self._table.transaction_version(HOUR_REPORTS_APP) or 0
        target = self._target
        end_ns = self._clock.now_ns() // HOUR_NS * HOUR_NS
        open_hours, ends = self._known_hours()
        facts = IngestFacts(self._root, done, target, self._coverage)
        due = facts.news(open_hours)
        due |= {name for name in facts.marked() if ends.get(name, 0) < end_ns}
        rows: list[dict[str, Any]] = []
        for name, device in facts.devices(due, open_hours):
            times = [mark.time_ns for mark in device.marks]
            first_ns = min(times, default=end_ns) // HOUR_NS * HOUR_NS
            if device.from_the_beginning:
                hours = set(hours_between(first_ns, end_ns))
            else:
                hours = set(hours_between(max(first_ns, ends.get(name, first_ns)), end_ns))
                hours |= open_hours.get(name, set()) if device.touched else set()
            if device.touched:
                hours |= device.imports.keys()
            rows += [_row(name, each) for each in device.report_hours(sorted(hours))]
        self._keep(facts.forks)
        return self._commit(rows, done, target)

    def _keep(self, forks: list[dict[str, Any]]) -> None:
        """Note the result of a comparison: each repeated message is compared once."""
        if forks:
            table = make_table(self._root, FORKS_TABLE)
            write_deltalake(table, pa.Table.from_pylist(forks, FORKS_TABLE.schema), mode="append")

    def _known_hours(self) -> tuple[dict[str, set[int]], dict[str, int]]:
        """Return by device the hours that may be judged otherwise yet, and the end of the last hour."""
        known = dataset_of(self._table).to_table(columns=["device", "hour", "state"])
        known = known.set_column(1, "hour", known.column("hour").cast(pa.int64()))
        last = known.group_by("device").aggregate([("hour", "max")]).to_pylist()
        open_hours: dict[str, set[int]] = {}
        for row in known.filter(~pc.field("state").isin(["complete", "erased"])).to_pylist():
            open_hours.setdefault(row["device"], set()).add(row["hour"] * 1000)
        return open_hours, {row["device"]: (row["hour_max"] + _HOUR_US) * 1000 for row in last}

    def _commit(self, rows: list[dict[str, Any]], done: int, target: int) -> Judged:
        days = sorted({row["date"] for row in rows})
        known = self._of_days(days)
        run, at_us = self._run + 1, next_stamp_us(self._table, self._clock)
        created = 0
        superseded: list[dict[str, Any]] = []
        for row in rows:
            before = known.get((row["device"], row["hour"]))
            if before is None:
                created += 1
            elif all(before[name] == row[name] for name in _SAID):
                continue
            else:
                row["version"] = before["version"] + 1
                superseded.append(before)
            row |= {"certified_at": at_us, "ingest": target, "run": run}
            known[row["device"], row["hour"]] = row
        with one_at_a_time(self._root, *_BUSY):
            if created or superseded:
                self._superseded.prepare(_table(superseded), run, at_us)
                apps = {HOUR_REPORTS_APP: target, RUN_APP: run, STAMP_APP: at_us}
                self._write(list(known.values()), days, apps)
            elif target > done:
                commit_files(self._table, HOUR_REPORTS_TABLE, [], {HOUR_REPORTS_APP: target})
        return Judged(done, target, created, len(superseded))

    @property
    def _run(self) -> int:
        """The number of the last run that changed a completeness report."""
        return self._table.transaction_version(RUN_APP) or 0

    def _of_days(self, days: list[int]) -> dict[tuple[str, int], dict[str, Any]]:
        if not days:
            return {}
        wanted = pa.array(days, pa.int32()).cast(pa.date32())
        rows = dataset_of(self._table, HOUR_REPORTS_TABLE).to_table(
            filter=pc.field("date").isin(wanted)
        )
        for name, kind in (
            ("hour", pa.int64()),
            ("certified_at", pa.int64()),
            ("date", pa.int32()),
        ):
            position = rows.schema.get_field_index(name)
            rows = rows.set_column(position, name, rows.column(name).cast(kind))
        found = rows.to_pylist()
        return {
            (row["device"], row["hour"]): row | {"chain": row["chain"] or "[]"} for row in found
        }

    def _write(self, rows: list[dict[str, Any]], days: list[int], apps: dict[str, int]) -> None:
        dates = pa.array(days, pa.int32()).cast(pa.date32()).to_pylist()
        rows.sort(key=lambda row: (row["device"], row["hour"]))
        write_deltalake(
            self._table,
            _table(rows),
            mode="overwrite",
            predicate=f"date in ({', '.join(repr(str(date)) for date in dates)})",
            commit_properties=transactions(apps),
        )


def _row(device: str, found: HourReport) -> dict[str, Any]:
    """Return a completeness report as a row, stamps as numbers."""
    explained = [[*each[:3], each.high or None, each.reason] for each in found.explained]
    return {
        "device": device,
        "hour": found.hour_ns // 1000,
        "state": found.state,
        "missing": sum(each.high - each.low + 1 for each in found.missing),
        "missing_ranges": json.dumps(found.missing[:RANGES_MAX]),
        "explained": sum(each.high - each.low + 1 for each in found.explained if each.high),
        "explained_ranges": json.dumps(explained[:RANGES_MAX]),
        "epochs": json.dumps(found.epochs),
        "why": found.why,
        "chain": json.dumps(found.chain),
        "version": 1,
        "date": found.hour_ns // (24 * HOUR_NS),
    }


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for each in HOUR_REPORTS_TABLE.schema:
        values = [row[each.name] for row in rows]
        plain = {"date": pa.int32()}.get(each.name) or (
            pa.int64() if pa.types.is_timestamp(each.type) else each.type
        )
        columns.append(pa.array(values, plain).cast(each.type))
    return pa.Table.from_arrays(columns, schema=HOUR_REPORTS_TABLE.schema)


def hour_reports_known_at(
    root: str, at: datetime | None, wanted: pc.Expression | None = None
) -> pa.Table:
    """Return the completeness reports as they are, or as a reader at time `at` (with its time zone) would have found them.

    Raises:
        TableMissingError: no hour was ever judged.
        NotKeptError: superseded ones are kept since a later time only.
    """
    if at is None:
        table = open_table(root, HOUR_REPORTS_TABLE)
        return dataset_of(table, HOUR_REPORTS_TABLE).to_table(filter=wanted)
    return rows_known_at(root, HOUR_REPORTS_TABLE, RUN_APP, "certified_at", at, wanted)


def hour_reports(root: str, device: str | None = None) -> list[tuple[str, HourReport]]:
    """Return (device, completeness report) of all devices or one, by device and hour.

    Raises:
        TableMissingError: no hour was ever judged.
    """
    wanted = pc.field("device") == device if device is not None else None
    rows = hour_reports_known_at(root, None, wanted)
    rows = rows.sort_by([("device", "ascending"), ("hour", "ascending")])
    rows = rows.set_column(1, "hour", rows.column("hour").cast(pa.int64()))
    return [(row["device"], _hour_report(row)) for row in rows.to_pylist()]


def _hour_report(row: dict[str, Any]) -> HourReport:
    explained = json.loads(row["explained_ranges"])
    return HourReport(
        row["hour"] * 1000,
        row["state"],
        tuple(json.loads(row["epochs"])),
        tuple(Missing(*each) for each in json.loads(row["missing_ranges"])),
        tuple(
            Reasoned(lane, epoch, low, high or 0, why) for lane, epoch, low, high, why in explained
        ),
        row["why"],
        tuple(Ends(*each) for each in json.loads(row["chain"] or "[]")),
    )
