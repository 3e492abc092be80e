"""One of the tables trips, stops and fences as its writer has it: rows that are another now, versions, former ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import h3  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.columns import STAMP
from backhaul_spark.places.stored import RUN_APP
from backhaul_spark.places.tasks import HOUR_NS
from backhaul_spark.tables.delta import commit_files, make_table
from backhaul_spark.tables.files import DataFile
from backhaul_spark.tables.rewrite import Rewrite
from backhaul_spark.tables.schemas import FENCES_TABLE, STOPS_TABLE, TRIPS_TABLE, TableSpec
from backhaul_spark.tables.superseded import Superseded

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What makes a row the same as another one: two of them are versions.
KEYS = {
    TRIPS_TABLE.name: ("device", "start_ns"),
    STOPS_TABLE.name: ("device", "start_ns"),
    FENCES_TABLE.name: ("device", "time_ns", "fence", "kind"),
}
WRITTEN = ("version", "restated_at", "ingest")
"""What a row says of its own making, as against what it says."""


def figures_of(spec: TableSpec) -> list[str]:
    """Return the columns that a computation from scratch gives alike."""
    return [name for name in spec.schema.names if name not in WRITTEN]


def complete(table: str, device: str, closed: int | None, said: Row, resolution: int) -> Row:
    """Return the row with all columns that follow from those of the fold, `said`.

    `closed`: the hour in which it became certain, None for never yet; `resolution`: of H3 cells.
    """
    row: Row = {"device": device, "closed": closed} | said
    begin_ns = said["time_ns" if table == FENCES_TABLE.name else "start_ns"]
    row["date"] = _time(begin_ns).date()
    if table == FENCES_TABLE.name:
        row["at"] = _time(begin_ns)
        return row | {"cell": h3.latlng_to_cell(said["lat"], said["lon"], resolution)}
    row |= {"started_at": _time(begin_ns), "ended_at": _time(said["end_ns"])}
    lasted_s = (said["end_ns"] - begin_ns) / 1e9
    if table == STOPS_TABLE.name:
        row["cell"] = h3.latlng_to_cell(said["lat"], said["lon"], resolution)
        return row | {"dwell_s": lasted_s}
    for end in ("start", "end"):
        lat, lon = said[f"{end}_lat"], said[f"{end}_lon"]
        row[f"{end}_cell"] = h3.latlng_to_cell(lat, lon, resolution)
    return row | {"duration_s": lasted_s}


def _time(time_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


@dataclass(slots=True)
class Recomputed:
    """Hours that a round computed again, and their rows.

    Attributes:
        hours: by device the hours.
        ends: devices whose last hour is among them, so that their open rows are others now.
        rows: complete ones, by table.
    """

    hours: dict[str, set[int]] = field(default_factory=dict)
    ends: set[str] = field(default_factory=set)
    rows: dict[str, list[Row]] = field(default_factory=dict)


class RowTable:
    """The table, owned by this process from construction on.

    Raises:
        CommitFailedError: another run is at work.
    """

    def __init__(self, root: str, spec: TableSpec, clock: Clock) -> None:
        self.spec = spec
        self.table = make_table(root, spec)
        self._superseded = Superseded(root, self.table, spec, RUN_APP, clock)
        # Times are there as numbers, too.
        self._figures = [name for name in figures_of(spec) if spec.schema.field(name).type != STAMP]
        self._keys = KEYS[spec.name]

    def commit(
        self,
        done: Recomputed,
        run: int,
        ingest: int,
        at_us: int,
        after: Callable[[str], None] = lambda step: None,
    ) -> tuple[int, int, int]:
        """Put the rows that are others now in the place of the former ones.

        Returns:
            How many rows are new, how many are another version, and how many are no more.

        Raises:
            CommitFailedError: another run is at work.
        """
        rewrite = Rewrite(self.table, self.spec, self._keys, run, at_us)
        new = {self._key(row): row for row in done.rows.get(self.spec.name, [])}
        gone = [self.spec.schema.empty_table()]
        for file, held in rewrite.files(_wanted(done)):
            places = self._others(held, done, new)
            if places:
                keep = [True] * held.num_rows
                for at in places:
                    keep[at] = False
                gone.append(held.take(pa.array(sorted(places))))
                rewrite.keep(file, held.filter(pa.array(keep)))
        former = pa.concat_tables(gone)
        if not new and not former.num_rows:
            return 0, 0, 0
        names = [former.column(name).to_pylist() for name in (*self._keys, "version")]
        versions = {tuple(row[:-1]): row[-1] for row in zip(*names, strict=True)}
        rows = [
            row
            | {
                "version": versions.get(key, 0) + 1,
                "restated_at": pa.scalar(at_us).cast(STAMP).as_py(),
                "ingest": ingest,
            }
            for key, row in new.items()
        ]
        rewrite.write(pa.Table.from_pylist(rows, self.spec.schema))
        self._superseded.prepare(former, run, at_us)
        after(f"{self.spec.name} superseded")
        commit_files(self.table, self.spec, rewrite.actions, {RUN_APP: run})
        restated = sum(key in versions for key in new)
        return len(new) - restated, restated, former.num_rows - restated

    def clear(self, first_hour: int, run: int, at_us: int) -> None:
        """Take out the rows of an hour, and of those after it.

        Raises:
            CommitFailedError: another run is at work.
        """
        rewrite = Rewrite(self.table, self.spec, self._keys, run, at_us)
        begin = self._keys[1] if self.spec.name == FENCES_TABLE.name else "end_ns"
        closed, last_ns = pc.field("closed"), pc.field(begin)
        late = last_ns >= first_hour * HOUR_NS
        goes = pc.if_else(closed.is_null(), late, closed >= first_hour)
        gone = [self.spec.schema.empty_table()]
        for file, held in rewrite.files(lambda file: True):
            part = held.filter(goes)
            if part.num_rows:
                gone.append(part)
                rewrite.keep(file, held.filter(~goes))
        if len(gone) > 1:
            rewrite.write(self.spec.schema.empty_table())
            self._superseded.prepare(pa.concat_tables(gone), run, at_us)
            commit_files(self.table, self.spec, rewrite.actions, {RUN_APP: run})

    def _others(
        self, held: pa.Table, done: Recomputed, new: dict[tuple[Any, ...], Row]
    ) -> list[int]:
        """Return the places of rows that are to go; of `new` those are taken out that are there already."""
        devices = pa.array(sorted(done.hours), pa.string())
        some = pc.indices_nonzero(pc.is_in(held.column("device"), devices))
        found = []
        for at, row in zip(some.to_pylist(), held.take(some).to_pylist(), strict=True):
            if row["closed"] is None:
                due = row["device"] in done.ends
            else:
                due = row["closed"] in done.hours[row["device"]]
            if not due:
                continue
            key = self._key(row)
            if key in new and self._said(row) == self._said(new[key]):
                del new[key]
            else:
                found.append(at)
        return found

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._keys)

    def _said(self, row: Mapping[str, Any]) -> str:
        # By their text, where 0.0 and -0.0 differ.
        return repr([row.get(name) for name in self._figures])


def _wanted(done: Recomputed) -> Callable[[DataFile], bool]:
    devices = sorted(done.hours)
    lowest = min((min(hours) for hours in done.hours.values() if hours), default=0)

    def wanted(file: DataFile) -> bool:
        newest, open_ = file.bounds.get("max.closed"), file.bounds.get("null_count.closed")
        late = newest is None or newest >= lowest
        return file.may_have(devices) and (late or open_ is None or open_ > 0)

    return wanted
