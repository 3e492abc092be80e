"""Write a survey's findings into the tables `anomalies`, `unjudged` and `fleet_days`. Driver side, without Spark.

fleet_days is written last and remembers up to which ingest was looked: a run that ends in between
is done again, and says the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake

from backhaul_runtime.clock import Clock
from backhaul_spark.fleet.findings import Coverage, FleetFinding
from backhaul_spark.fleet.readings import CELLS_MAX
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import Row, as_table, versioned, withdrawn
from backhaul_spark.fleet.survey import Survey, Surveyor, day_before
from backhaul_spark.fleet.unjudged import UnjudgedPart
from backhaul_spark.tables.delta import (
    dataset_of,
    make_table,
    one_at_a_time,
    open_if_there,
    open_table,
)
from backhaul_spark.tables.schemas import (
    ANOMALIES_TABLE,
    FLEET_DAYS_TABLE,
    HOUR_REPORTS_TABLE,
    ROLLUPS_TABLE,
    UNJUDGED_TABLE,
    TableSpec,
)

ANOMALIES_MAX = 10_000
"""Rows that a day or hour gets in `anomalies`, by rank; a report with more is one nobody reads."""
_UNJUDGED_KEY = ("reason", "device", "node", "type", "key")
_DAY_KEY = ("date", "model", "firmware", "node", "type", "key")


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one run: anomalies that stand, and rows that are new or changed."""

    day: str
    hour: int | None
    devices: int
    silent: int
    anomalies: int
    changed: int
    withdrawn: int
    not_judged: str = ""
    """What was not judged and why, "" where all was."""


class FleetJob:
    """Finds the anomalies of days and hours.

    Args:
        clock: for `computed_at`, and for which hours have been.
        after: called with the name of each step when it is done; tests end the process there.
    """

    def __init__(
        self,
        root: str,
        clock: Clock,
        settings: FleetSettings,
        cells_max: int = CELLS_MAX,
        after: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._root, self._clock, self._settings = root, clock, settings
        self._cells_max = cells_max
        self._after = after
        open_table(root, ROLLUPS_TABLE)

    def due(self) -> list[date]:
        """Return the days that have ended whose rollups or completeness reports changed since they were judged."""
        done = self._done()
        last = day_before(self._clock.now_ns())
        basis = self._basis()
        return sorted(day for day in basis if day <= last and basis[day] > done.get(day, -1))

    def run(self, day: date, hour: int | None = None) -> Done:
        """Judge a day, or an hour of it, and replace the findings from before.

        Raises:
            NothingFoundError: there is nothing of that day.
            TablesBusyError: another run committed meanwhile. Its work stands.
        """
        ingest = self._basis().get(day, 0)
        surveyor = Surveyor(self._root, self._settings, self._clock.now_ns(), self._cells_max)
        survey = surveyor.survey(day, hour)
        stamps = {
            "version": 1,
            "computed_at": datetime.fromtimestamp(self._clock.now_ns() // 1000 / 1e6, UTC),
            "ingest": ingest,
            "date": day,
        }
        changed, gone = self._write_anomalies(survey, stamps)
        self._after("anomalies")
        self._write_unjudged(survey, stamps)
        self._after("unjudged")
        if hour is None:
            self._write_days(survey, stamps)
            self._after("fleet_days")
        seen = int(survey.heard.sum())
        said = min(len(survey.findings), ANOMALIES_MAX)
        silent = len(survey.cohorts) - seen
        return Done(str(day), hour, seen, silent, said, changed, gone, survey.not_judged)

    def _write_anomalies(self, survey: Survey, stamps: Row) -> tuple[int, int]:
        scope = str(survey.day) + ("" if survey.hour is None else f"T{survey.hour:02}")
        found = enumerate(survey.findings[:ANOMALIES_MAX], 1)
        rows = [_row(each, rank, scope, survey.hour) | stamps for rank, each in found]
        table = make_table(self._root, ANOMALIES_TABLE)
        mine, predicate = _scope(survey)
        known = _rows(table, mine)
        gone = withdrawn(rows, known, stamps)
        result, changed = versioned([*rows, *gone], known, ("id",))
        if changed:
            self._replace(table, ANOMALIES_TABLE, result, predicate)
        newly = sum(1 for row in gone if row["computed_at"] == stamps["computed_at"])
        return changed, newly

    def _write_unjudged(self, survey: Survey, stamps: Row) -> None:
        table = make_table(self._root, UNJUDGED_TABLE)
        mine, predicate = _scope(survey)
        known = _rows(table, mine)
        rows = [_unjudged_row(each, survey.hour) | stamps for each in survey.unjudged]
        result, changed = versioned(rows, known, _UNJUDGED_KEY)
        if changed or len(result) != len(known):
            self._replace(table, UNJUDGED_TABLE, result, predicate)

    def _write_days(self, survey: Survey, stamps: Row) -> None:
        table = make_table(self._root, FLEET_DAYS_TABLE)
        known = _rows(table, pc.field("date") == survey.day)
        rows = [row | stamps for row in day_rows(survey)]
        result, _ = versioned(rows, known, _DAY_KEY)
        for row in result:  # unlike the anomalies: it says up to where the day was looked at
            row["ingest"] = stamps["ingest"]
        self._replace(table, FLEET_DAYS_TABLE, result, f"date = '{survey.day}'")

    def _replace(self, table: DeltaTable, spec: TableSpec, rows: list[Row], predicate: str) -> None:
        content = as_table(rows, spec.schema)
        with one_at_a_time(self._root, "anomalies", "another run has judged meanwhile"):
            write_deltalake(table, content, mode="overwrite", predicate=predicate)

    def _basis(self) -> dict[date, int]:
        """Return by day the last ingest that its hours or completeness reports have taken in."""
        basis: dict[date, int] = {}
        for spec, wanted in (
            (ROLLUPS_TABLE, pc.field("partition.width") == "1h"),
            (HOUR_REPORTS_TABLE, None),
        ):
            table = open_if_there(self._root, spec)
            if table is None:
                continue
            actions = pa.table(table.get_add_actions(flatten=True))
            if wanted is not None:
                actions = actions.filter(wanted)
            pairs = (actions.column(name).to_pylist() for name in ("partition.date", "max.ingest"))
            for day, ingest in zip(*pairs, strict=True):
                basis[day] = max(basis.get(day, 0), ingest or 0)
        return basis

    def _done(self) -> dict[date, int]:
        table = open_if_there(self._root, FLEET_DAYS_TABLE)
        if table is None:
            return {}
        rows = dataset_of(table).to_table(columns=["date", "ingest"]).group_by("date")
        found = rows.aggregate([("ingest", "max")]).to_pylist()
        return {row["date"]: row["ingest_max"] for row in found}


def _rows(table: DeltaTable, where: Any) -> list[Row]:
    rows: list[Row] = dataset_of(table).to_table(filter=where).to_pylist()
    return rows


def _scope(survey: Survey) -> tuple[Any, str]:
    """Return the rows of a survey's day or hour, for Arrow and for Delta."""
    hour = pc.field("hour")
    mine = hour.is_null() if survey.hour is None else hour == survey.hour
    of_hour = "hour is null" if survey.hour is None else f"hour = {survey.hour}"
    return (pc.field("date") == survey.day) & mine, f"date = '{survey.day}' and {of_hour}"


def _unjudged_row(part: UnjudgedPart, hour: int | None) -> Row:
    node, type_, key = part.signal or ("", "", "")
    names = {"reason": part.reason, "device": part.device, "node": node, "type": type_, "key": key}
    return {"hour": hour} | names | {"devices": part.devices, "text": part.text}


def _row(found: FleetFinding, rank: int, scope: str, hour: int | None) -> Row:
    signal = found.signal or ("", "", "")
    coverage = found.coverage or Coverage(0, 0)
    return {
        "id": found.id(scope),
        "hour": hour,
        "rank": rank,
        "kind": found.kind,
        "device": found.device,
        "model": found.model,
        "firmware": found.firmware,
        "node": signal[0],
        "type": signal[1],
        "key": signal[2],
        "score": found.score,
        "value": found.value,
        "expected": found.expected,
        "peers": found.peers,
        "cohort": found.cohort,
        "hours": coverage.hours,
        "hours_seen": coverage.seen,
        "hours_complete": coverage.complete,
        "hours_explained": coverage.explained,
        "hours_waiting": coverage.waiting,
        "also": ", ".join(found.also),
        "text": found.text,
        "state": "open",
    }


def day_rows(survey: Survey) -> list[Row]:
    """Return the rows of fleet_days, without their stamps: cohorts, and their signals."""
    cohorts, census = survey.cohorts, survey.census
    number = len(cohorts.names)
    seen = survey.heard

    def total(values: Any) -> list[int]:
        sums = np.bincount(cohorts.cohort, np.asarray(values, dtype=float), number)
        return [int(each) for each in sums.tolist()]

    columns = {
        "devices": total(seen),
        "silent": total(~seen),
        "points": total(census.points),
        "hours": total(np.full(len(cohorts), survey.hours)),
        "hours_seen": total(census.seen.sum(axis=1)),
        "hours_complete": total(survey.reported[:, 0]),
        "hours_explained": total(survey.reported[:, 1]),
        "hours_waiting": total(survey.reported[:, 2]),
    }
    found = Counter((each.model, each.firmware) for each in survey.findings)
    by_signal = Counter((each.model, each.firmware, each.signal) for each in survey.findings)
    nothing: Row = dict.fromkeys(("median", "mad", "fall_median", "fall_mad"))
    rows = []
    for at, (model, firmware) in enumerate(cohorts.names):
        names: Row = {"model": model, "firmware": firmware, "node": "", "type": "", "key": ""}
        sums: Row = {name: column[at] for name, column in columns.items()}
        rows.append(names | sums | nothing | {"anomalies": found[model, firmware]})
    for each in survey.cohort_signals:
        model, firmware = cohorts.names[each.cohort]
        node, type_, key = each.signal
        names = {"model": model, "firmware": firmware, "node": node, "type": type_, "key": key}
        numbers: Row = {"median": each.median, "mad": each.mad}
        falls = {"fall_median": each.fall, "fall_mad": each.fall_mad}
        sums = dict.fromkeys(columns) | {"devices": each.devices}
        anomalies = {"anomalies": by_signal[model, firmware, each.signal]}
        rows.append(names | sums | numbers | falls | anomalies)
    return rows
