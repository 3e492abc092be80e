"""Erase vehicles from all tables: their rows, the files that held them, and their values in the logs. No Spark.

Beside a running ingest and rollup: each step is a commit of its own, and can be done again. `maintain` does it again
for all that were ever erased, so that nothing which an older writer brought stays. Their completeness reports stay, as
`erased`: nobody is to take the hours for whole, or for silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from backhaul_codec.subjects import IMPORT
from backhaul_runtime.clock import Clock
from backhaul_spark.columns import STAMP
from backhaul_spark.completeness.hour_reports import HOUR_REPORTS_APP
from backhaul_spark.completeness.states import RUN_APP
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.places.stored import PLACES_APP
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.sink.alert_tables import APP as TWIN_APP
from backhaul_spark.tables.compaction import UPKEEP_APP
from backhaul_spark.tables.delta import (
    INGEST_APP,
    add_action,
    commit_files,
    dataset_of,
    make_table,
    open_if_there,
    open_table,
    table_uri,
)
from backhaul_spark.tables.files import DataFile, data_files
from backhaul_spark.tables.part_file import PartFile
from backhaul_spark.tables.rewrite import Action, without
from backhaul_spark.tables.schemas import (
    ALERTS_TABLE,
    COVERAGE_TABLE,
    ERASURES_TABLE,
    FENCES_TABLE,
    HOUR_REPORTS_TABLE,
    PLACE_STATES_TABLE,
    POINTS_TABLE,
    REJECTS_TABLE,
    ROLLUPS_TABLE,
    STOPS_TABLE,
    TABLES,
    TRIPS_TABLE,
    TWINS_TABLE,
    TableSpec,
)
from backhaul_spark.tables.traces import drop_former_files, forget_former_values

_TRIES = 10
# The ids that their owners move whenever they take files out: of two who do at a time Delta refuses one.
_APPS = {
    COVERAGE_TABLE.name: (INGEST_APP,),
    ROLLUPS_TABLE.name: (ROLLUP_APP,),
    HOUR_REPORTS_TABLE.name: (HOUR_REPORTS_APP, RUN_APP),
    ALERTS_TABLE.name: (TWIN_APP,),
    TWINS_TABLE.name: (TWIN_APP,),
    **{
        spec.name: (PLACES_APP,)
        for spec in (TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE, PLACE_STATES_TABLE)
    },
}
_BLANK = {
    "state": "erased",
    "missing": 0,
    "missing_ranges": "[]",
    "explained": 0,
    "explained_ranges": "[]",
    "epochs": "[]",
    "why": "",
    "chain": "[]",
}


@dataclass(slots=True)
class ErasedRows:
    """The result: rows by table that were taken out, and files of the past that were deleted."""

    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0


class TableErasure:
    """Erases vehicles from the tables under a root.

    Args:
        after: called with the name of each table when it is done; tests end the process there.
    """

    def __init__(
        self, root: str, clock: Clock, after: Callable[[str], None] = lambda table: None
    ) -> None:
        self._root = root
        self._clock = clock
        self._after = after
        self._done = ErasedRows()

    def run(self, devices: Iterable[str] = ()) -> ErasedRows:
        """Erase these, and once more all that were erased before.

        Raises:
            TableMissingError: nothing was ever ingested.
            TablesBusyError: somebody else takes out files all the time. What is committed stays.
        """
        open_table(self._root, POINTS_TABLE)
        known = self._noted(devices)
        if not known:
            return self._done
        for spec in TABLES:
            table = open_if_there(self._root, spec)
            # The former files go also where no row did: a predecessor may have ended in between.
            if table is not None and (self._erase(spec, sorted(known)) or devices):
                table = open_table(self._root, spec)
                self._done.files += drop_former_files(table)
                forget_former_values(table)
            self._after(spec.name)
        self._note(known, done=True)
        return self._done

    def _noted(self, devices: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Note that devices are to be erased, and return all that ever were."""
        known = erased_devices(self._root)
        new = {
            device: {"device": device, "asked_at": self._clock.now_ns() // 1000, "rows": 0}
            for device in devices
            if device not in known
        }
        if new:
            self._note(known | new, done=False)
        return known | new

    def _note(self, known: Mapping[str, dict[str, Any]], *, done: bool) -> None:
        now_us = self._clock.now_ns() // 1000
        rows = [
            {name: row.get(name) for name in ERASURES_TABLE.schema.names}
            | ({"done_at": row.get("done_at") or now_us} if done else {})
            for row in known.values()
        ]
        if done:
            for row in rows:
                row["rows"] = (row["rows"] or 0) + sum(self._done.rows.values())
        arrays = [
            pa.array([row[each.name] for row in rows], pa.int64()).cast(each.type)
            if each.type == STAMP
            else pa.array([row[each.name] for row in rows], each.type)
            for each in ERASURES_TABLE.schema
        ]
        table = make_table(self._root, ERASURES_TABLE)
        content = pa.Table.from_arrays(arrays, schema=ERASURES_TABLE.schema)
        write_deltalake(table, content, mode="overwrite")

    def _erase(self, spec: TableSpec, devices: list[str]) -> int:
        """Take the rows of devices out of a table; return how many."""
        for _ in range(_TRIES):
            with suppress(CommitFailedError):  # somebody else was at it: look again
                rows = self._try(spec, devices)
                if rows:
                    self._done.rows[spec.name] = rows
                return rows
        raise TablesBusyError(self._root, f"somebody else tidies up {spec.name}", "erase")

    def _try(self, spec: TableSpec, devices: list[str]) -> int:
        about = _About.of(spec, devices)
        if about is None:
            return 0
        table, uri = open_table(self._root, spec), table_uri(self._root, spec.name)
        number, now_ns = table.version() + 1, self._clock.now_ns()
        files = (file for file in data_files(table, spec) if file.may_have(devices))
        found = without(uri, files, number, now_ns, keep=about.stays, columns=about.columns)
        actions: list[Action] = []
        rows, days = 0, dict[str, DataFile]()
        for file, gone, changes in found:
            rows += gone
            actions += changes
            if spec is HOUR_REPORTS_TABLE:
                days[file.partition["date"]] = file
        actions += [self._blanked(table, each, devices, number, now_ns) for each in days.values()]
        if actions:
            apps = {app: table.transaction_version(app) or 0 for app in _APPS.get(spec.name, ())}
            commit_files(table, spec, actions, apps | {UPKEEP_APP: number})
        return rows

    def _blanked(
        self, table: DeltaTable, file: DataFile, devices: list[str], number: int, now_ns: int
    ) -> AddAction:
        """Return a file with the completeness reports of devices on the day of another file, all of them `erased`."""
        day = pa.scalar(file.partition["date"]).cast(pa.date32())
        wanted = (
            pc.field("device").isin(devices)
            & (pc.field("date") == day)
            & (pc.field("state") != _BLANK["state"])
        )
        found = dataset_of(table, HOUR_REPORTS_TABLE).to_table(filter=wanted)
        names = [name for name in HOUR_REPORTS_TABLE.schema.names if name != "date"]
        found = found.select(names)
        for name, value in _BLANK.items():
            place = found.schema.get_field_index(name)
            kind = found.schema.field(name).type
            found = found.set_column(place, name, pa.array([value] * found.num_rows, kind))
        part = PartFile(
            table_uri(self._root, HOUR_REPORTS_TABLE.name), file.partition, number, found.schema
        )
        part.write(found)
        return add_action(part.close(), now_ns)


@dataclass(frozen=True, slots=True)
class _About:
    """Which rows of a table are about devices."""

    columns: list[str]
    stays: Callable[[pa.RecordBatch], pa.Array]
    """Returns of a batch which rows do not go, as booleans."""

    @classmethod
    def of(cls, spec: TableSpec, devices: list[str]) -> _About | None:
        """Return it for a table; None: none of its rows is about a device."""
        if spec is REJECTS_TABLE:
            return cls(["subject"], lambda batch: _of_others(batch, devices))
        if "device" not in spec.schema.names or spec is ERASURES_TABLE:
            return None
        if spec is HOUR_REPORTS_TABLE:
            return cls(
                ["device", "state"],
                lambda batch: pc.or_(
                    _not_in(batch, devices), pc.equal(_text(batch, "state"), _BLANK["state"])
                ),
            )
        return cls(["device"], lambda batch: _not_in(batch, devices))


def erased_devices(root: str) -> dict[str, dict[str, Any]]:
    """Return the devices that were erased from these tables, or are to be: `done_at` is None then. Stamps in µs."""
    table = open_if_there(root, ERASURES_TABLE)
    if table is None:
        return {}
    rows = dataset_of(table, ERASURES_TABLE).to_table()
    for name in ("asked_at", "done_at"):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, rows.column(name).cast(pa.int64()))
    return {row["device"]: row for row in rows.to_pylist()}


def _not_in(batch: pa.RecordBatch, devices: list[str]) -> pa.Array:
    inside = pc.is_in(_text(batch, "device"), value_set=pa.array(devices, pa.string()))
    return pc.invert(inside)


def _of_others(batch: pa.RecordBatch, devices: list[str]) -> pa.Array:
    subjects = pc.fill_null(_text(batch, "subject"), "")
    stays = pa.repeat(pa.scalar(True), batch.num_rows)
    for device in devices:
        for prefix in ("up", IMPORT):
            stays = pc.and_(stays, pc.invert(pc.starts_with(subjects, f"{prefix}.{device}.")))
    return stays


def _text(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name).cast(pa.string())
