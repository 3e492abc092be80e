"""Rewrite the files of a table, partition by partition, in one commit: only those with rows that go.

Copy on write, as the rollup does it. Files are sorted and hold at most FILE_ROWS rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from backhaul_spark.rollup.files import FILE_ROWS, SMALL_FILES_MAX
from backhaul_spark.tables.compaction import as_schema
from backhaul_spark.tables.delta import add_action, remove_action
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.part_file import PartFile
from backhaul_spark.tables.schemas import TableSpec

File = Mapping[str, Any]


class Rewrite:
    """The change of one commit to a table that is partitioned by `date`.

    Args:
        table: as loaded.
        spec: its spec.
        order: the columns that rows of a file are sorted by.
        number: for the names of files.
        at_us: the time of the commit, us since 1970.
    """

    def __init__(
        self, table: DeltaTable, spec: TableSpec, order: Sequence[str], number: int, at_us: int
    ) -> None:
        self._uri, self._spec, self._order = table.table_uri, spec, order
        self._number, self._at_us = number, at_us
        self._files: list[File] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self._schema = pa.schema([field for field in spec.schema if field.name != "date"])
        self._rest: dict[str, list[pa.Table]] = {}
        self._gone: set[str] = set()
        self.actions: list[AddAction | RemoveAction] = []

    def files(self, wanted: Callable[[File], bool]) -> Iterator[tuple[File, pa.Table]]:
        """Yield the wanted files, with their rows."""
        for file in self._files:
            if wanted(file):
                yield file, self._read(file)

    def keep(self, file: File, rows: pa.Table) -> None:
        """Take a file out, but for these of its rows."""
        self._gone.add(file["path"])
        self._rest.setdefault(str(file["partition.date"]), []).append(rows)
        self.actions.append(
            remove_action(
                unquote(file["path"]),
                file["size_bytes"],
                {"date": str(file["partition.date"])},
                self._at_us * 1000,
            )
        )

    def write(self, rows: pa.Table) -> None:
        """Put in new rows, with those that were kept."""
        days = {str(day): day for day in rows.column("date").unique().to_pylist()}
        for day in sorted({*days, *self._rest}):
            new = rows.filter(pc.equal(rows.column("date"), days[day])) if day in days else None
            self._write(day, new)

    def _write(self, day: str, new: pa.Table | None) -> None:
        small = [
            file
            for file in self._files
            if str(file["partition.date"]) == day
            and file["path"] not in self._gone
            and file["num_records"] < FILE_ROWS // 2
        ]
        if len(small) > SMALL_FILES_MAX:
            for file in small:
                self.keep(file, self._read(file))
        parts = self._rest.get(day, []) + ([new] if new is not None else [])
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return
        whole = pa.concat_tables(parts).sort_by([(name, "ascending") for name in self._order])
        for start in range(0, whole.num_rows, FILE_ROWS):
            part = PartFile(self._uri, {"date": day}, self._number, self._schema)
            part.write(whole.slice(start, FILE_ROWS).select(self._schema.names))
            self.actions.append(add_action(part.close(), self._at_us * 1000))

    def _read(self, file: File) -> pa.Table:
        with open_input(self._uri, unquote(file["path"])) as source:
            rows = as_schema(pq.read_table(source), self._schema)
        day: date = file["partition.date"]
        rows = rows.append_column("date", pa.repeat(pa.scalar(day), rows.num_rows))
        return rows.select(self._spec.schema.names)


def may_have(file: File, devices: Sequence[str]) -> bool:
    """Say by its statistics whether a file may have rows of some devices, given sorted."""
    low, high = file.get("min.device"), file.get("max.device")
    return bool(devices) and not (
        (low is not None and devices[-1] < low) or (high is not None and devices[0] > high)
    )
