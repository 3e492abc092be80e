"""The tables at one moment: their files, the messages that ingest holds, and how far the rollups are.

Tables stay open between questions, and each question sees what was committed since. Rollups are looked at before
points, so that no point is summed up that points does not show; coverage belongs to the points beside it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from backhaul_codec.ranges import RangeSet
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.ingest.checkpoint_files import checkpoint_id, end_of_batch
from backhaul_spark.ingest.coverage import LaneKey
from backhaul_spark.nats.dictionaries import CODE as WAITING_CODE
from backhaul_spark.nats.offsets import Marks
from backhaul_spark.rollup.plan import points_from
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.tables.delta import (
    COMMIT_TRIES,
    committed_ingest,
    dataset_of,
    open_if_there,
    table_uri,
)
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    HOUR_REPORTS_TABLE,
    POINTS_TABLE,
    REJECTS_TABLE,
    ROLLUPS_TABLE,
    TableSpec,
)

ASIDE_MAX = 256
"""Messages of one device that were set aside for want of a dictionary, and are looked at again: the newest."""
UNREADABLE = "the rollups cannot be read, points stand in for them: {}"
_BOUNDS = ("device", "time", "ingest")

Lane = tuple[str, int]
"""Lane and epoch."""


@dataclass(frozen=True, slots=True)
class View:
    """The state of the tables that one question goes by.

    `points`, `rollups`, `reports`: the tables' files, see `files_of`. Points of ingests up to `rolled_up_to` are in
    the rollups, all up to `ingested` in points. `lanes`: the messages of the device that points holds. `marks`: how
    far ingest has read the streams; None: nobody knows. `kept_from`: points of days before it are gone. `aside`:
    messages (stream, sequence) that were set aside, maybe taken up since. `trouble`: why there are no rollups.
    """

    root: str
    points: pa.Table
    rollups: pa.Table
    reports: pa.Table
    rolled_up_to: int = 0
    ingested: int = 0
    lanes: dict[Lane, RangeSet] = field(default_factory=dict)
    marks: Marks | None = None
    kept_from: date | None = None
    aside: tuple[tuple[str, int], ...] = ()
    trouble: str = ""

    def covers(self, lane: str, epoch: int, seq: int) -> bool:
        """Tell whether points holds a message of the device."""
        held = self.lanes.get((lane, epoch))
        return held is not None and seq in held


class Tables:
    """The tables under a root, and the checkpoint of the ingest that writes them.

    Args:
        root: of the tables, which need not be there yet.
        checkpoint: where the ingest keeps its place.
    """

    def __init__(self, root: str, checkpoint: str) -> None:
        self._root = root
        self._checkpoint = checkpoint
        self._open: dict[str, DeltaTable] = {}
        self._files: dict[str, tuple[int, pa.Table]] = {}
        self._coverage = _Coverage(table_uri(root, COVERAGE_TABLE.name))
        self._app = ""
        self._aside_version, self._aside_of = -1, dict[str, set[tuple[str, int]]]()
        self._turn = threading.Lock()

    def view(self, device: str) -> View:
        """Return how the tables stand now, for questions about one device; empty where nothing was ingested yet.

        Raises:
            TablesBusyError: ingests come faster than the tables can be looked at.
            OSError: they cannot be read.
        """
        with self._turn:
            rollups, trouble = self._rollups()
            rolled = (rollups.transaction_version(ROLLUP_APP) or 0) if rollups else 0
            of_rollups = self._files_of(ROLLUPS_TABLE)
            reports = self._table(HOUR_REPORTS_TABLE)
            points = self._table(POINTS_TABLE)
            if points is None:
                return View(self._root, *(_no_files() for _ in range(3)))
            ingested = self._settled(points)
            return View(
                self._root,
                self._files_of(POINTS_TABLE),
                of_rollups,
                self._files_of(HOUR_REPORTS_TABLE) if reports else _no_files(),
                rolled_up_to=min(rolled, ingested),
                ingested=ingested,
                lanes=self._coverage.of(device),
                marks=self._marks(points),
                kept_from=points_from(points),
                aside=self._aside(device),
                trouble=trouble,
            )

    def _rollups(self) -> tuple[DeltaTable | None, str]:
        """Return the table, or why it cannot be used."""
        try:
            return self._table(ROLLUPS_TABLE), ""
        except (OSError, DeltaError) as error:
            return None, UNREADABLE.format(error)

    def _table(self, spec: TableSpec) -> DeltaTable | None:
        """Return a table as it is now; None where it is not there."""
        table = self._open.get(spec.name)
        if table is not None:
            try:
                table.update_incremental()
            except Exception:  # noqa: BLE001 - it was made anew: delta-rs has errors of its own for that
                del self._open[spec.name]
                self._files.pop(spec.name, None)
                table = None
        if table is None:
            table = open_if_there(self._root, spec)
            if table is not None:
                self._open[spec.name] = table
        return table

    def _settled(self, points: DeltaTable) -> int:
        """Load coverage as of an ingest that points has, and return its number."""
        for _ in range(COMMIT_TRIES):
            ingested = committed_ingest(points)
            coverage = self._table(COVERAGE_TABLE)
            points.update_incremental()
            if committed_ingest(points) == ingested:
                self._coverage.take(coverage, ingested)
                return ingested
        raise TablesBusyError(self._root, "ingests come faster than the tables are read")

    def _files_of(self, spec: TableSpec) -> pa.Table:
        table = self._open.get(spec.name)
        if table is None:
            return _no_files()
        version, files = self._files.get(spec.name, (-1, None))
        if version != table.version():
            files = files_of(table)
            self._files[spec.name] = table.version(), files
        return files

    def _marks(self, points: DeltaTable) -> Marks | None:
        """Return up to where the last ingest has read: by the plan of Spark's last batch that points has."""
        try:
            self._app = self._app or checkpoint_id(self._checkpoint)
            batch = points.transaction_version(self._app)
            return None if batch is None else end_of_batch(self._checkpoint, batch)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            self._app = ""  # it may be made anew
            return None

    def _aside(self, device: str) -> tuple[tuple[str, int], ...]:
        table = self._table(REJECTS_TABLE)
        if table is None:
            return ()
        if table.version() != self._aside_version:
            rows = dataset_of(table).to_table(
                columns=["subject", "stream", "stream_seq"],
                filter=pc.field("code") == WAITING_CODE,
            )
            self._aside_of = {}
            for row in rows.to_pylist():
                whose = row["subject"].split(".")[1:2]
                places = self._aside_of.setdefault("".join(whose), set())
                places.add((row["stream"], row["stream_seq"]))
            self._aside_version = table.version()
        return tuple(sorted(self._aside_of.get(device, ()))[-ASIDE_MAX:])


class _Coverage:
    """The messages that points holds, by device; files that were read once are not read again."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._read: set[str] = set()
        self._lanes: dict[str, dict[Lane, RangeSet]] = {}

    def take(self, table: DeltaTable | None, ingested: int) -> None:
        """Take in the rows that were committed up to an ingest; a later one has not happened."""
        there: dict[str, int | None] = {}
        if table is not None:
            actions = pa.table(table.get_add_actions(flatten=True))
            paths = map(unquote, actions.column("path").to_pylist())
            there = dict(zip(paths, actions.column("max.ingest").to_pylist(), strict=True))
        if not self._read <= there.keys():  # merged, or another table: from the start
            self._read, self._lanes = set(), {}
        for path, last in there.items():
            if path in self._read or (last is not None and last > ingested):
                continue
            with open_input(self._uri, path) as source:
                rows = pq.read_table(source, columns=[*LaneKey._fields, "lo", "hi"])
            for device, lane, epoch, lo, hi in zip(
                *(each.to_pylist() for each in rows.columns), strict=True
            ):
                lanes = self._lanes.setdefault(device, {})
                lanes.setdefault((lane, epoch), RangeSet()).add(lo, hi)
            self._read.add(path)

    def of(self, device: str) -> dict[Lane, RangeSet]:
        """Return a copy of one device's lanes."""
        return {lane: RangeSet(held) for lane, held in self._lanes.get(device, {}).items()}


_FILES = pa.schema(
    [
        ("path", pa.string()),
        ("width", pa.string()),
        ("date", pa.date32()),
        ("rows", pa.int64()),
        ("min.device", pa.string()),
        ("max.device", pa.string()),
        ("min.time", pa.int64()),
        ("max.time", pa.int64()),
        ("min.ingest", pa.int64()),
        ("max.ingest", pa.int64()),
    ]
)


def _no_files() -> pa.Table:
    return _FILES.empty_table()


def files_of(table: DeltaTable) -> pa.Table:
    """Return path, width (of rollups), date, rows and bounds (µs since 1970 of time) of a table's files; null: unknown."""
    actions = pa.table(table.get_add_actions(flatten=True))

    def column(name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
        if name not in actions.column_names:
            return pa.nulls(actions.num_rows, kind)
        found = actions.column(name)
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.timestamp("us", found.type.tz)).cast(pa.int64())
        return found.cast(kind)

    paths = [unquote(path) for path in actions.column("path").to_pylist()]
    found = {
        "path": pa.array(paths, pa.string()),
        "width": column("partition.width", pa.string()),
        "date": column("partition.date", pa.date32()),
        "rows": column("num_records", pa.int64()),
    }
    for name in _BOUNDS:
        for end in ("min", "max"):
            field_ = _FILES.field(f"{end}.{name}")
            found[field_.name] = column(field_.name, field_.type)
    return pa.table(found, schema=_FILES)


def chosen(files: pa.Table, device: str, days: tuple[date, date], **equal: Any) -> pa.Table:
    """Return the files that may hold rows of a device in days (both included).

    `equal`: what other columns have to be.
    """
    unit = pa.date32()
    wanted = pc.field("date") >= pa.scalar(days[0], unit)
    wanted &= pc.field("date") <= pa.scalar(days[1], unit)
    wanted &= pc.is_null(pc.field("min.device")) | (pc.field("min.device") <= device)
    wanted &= pc.is_null(pc.field("max.device")) | (pc.field("max.device") >= device)
    for name, value in equal.items():
        wanted &= pc.field(name) == value
    return files.filter(wanted)


def day_of(moment_us: int) -> date:
    """Return the UTC day of a time, µs since 1970."""
    days = np.datetime64(moment_us // 86_400_000_000, "D")
    found = days.item()
    assert isinstance(found, date)
    return found


__all__ = ["Tables", "View", "chosen", "day_of", "files_of"]
