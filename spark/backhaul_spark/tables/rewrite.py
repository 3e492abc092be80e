"""Rewrite the files of a table, partition by partition, in one commit: only those with rows that go or change.

Copy on write. Files are sorted and hold at most FILE_ROWS rows, so that a late vehicle touches its own part of a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from backhaul_spark.tables.delta import add_action
from backhaul_spark.tables.files import DataFile, data_files, open_input
from backhaul_spark.tables.part_file import PartFile, as_schema, stored_schema, without_rows
from backhaul_spark.tables.schemas import TableSpec

FILE_ROWS = 1 << 18
# Small files of a partition that may lie there before they become one.
SMALL_FILES_MAX = 8
Action: TypeAlias = AddAction | RemoveAction
Partition: TypeAlias = tuple[str, ...]
"""Values of the columns that a table is partitioned by, in their order, as text."""


class Rewrite:
    """The change of one commit to a table.

    Args:
        number: for the names of files.
        at_us: the time of the commit, us since 1970.
    """

    def __init__(
        self, table: DeltaTable, spec: TableSpec, order: Sequence[str], number: int, at_us: int
    ) -> None:
        self._uri, self._spec, self._order = table.table_uri, spec, order
        self._number, self._now_ns = number, at_us * 1000
        self._schema = stored_schema(spec)
        self._files: dict[Partition, list[DataFile]] = {}
        for file in data_files(table, spec):
            self._files.setdefault(tuple(file.partition.values()), []).append(file)
        self._rest: dict[Partition, list[pa.Table]] = {}
        self.actions: list[Action] = []

    def files(
        self, wanted: Callable[[DataFile], bool], partition: Partition | None = None
    ) -> Iterator[tuple[DataFile, pa.Table]]:
        """Yield the wanted files, of one partition or of all, with their rows."""
        for each in [*self._files] if partition is None else [partition]:
            for file in [*self._files.get(each, ())]:
                if wanted(file):
                    yield file, self._read(file)

    def keep(self, file: DataFile, rows: pa.Table | None = None) -> None:
        """Take a file out, but for these of its rows, if any."""
        partition = tuple(file.partition.values())
        self._files[partition].remove(file)
        rest = self._rest.setdefault(partition, [])
        if rows is not None:
            rest.append(rows)
        self.actions.append(file.removal(self._now_ns))

    def write(self, rows: pa.Table) -> None:
        """Put in new rows of any partitions, with those that were kept."""
        by = [*self._spec.partition_by]
        places = pa.table([rows.column(name).cast(pa.string()) for name in by], by)
        found = places.group_by(by).aggregate([]).to_pydict().values()
        for partition in sorted({*self._rest, *zip(*found, strict=True)}):
            mine = [pc.equal(*pair) for pair in zip(places.columns, partition, strict=True)]
            self.put(partition, rows.filter(reduce(pc.and_, mine)))

    def put(self, partition: Partition, new: pa.Table) -> None:
        """Put in new rows of one partition, with those of it that were kept."""
        files = self._files.get(partition, [])
        small = [file for file in files if file.rows < FILE_ROWS // 2]
        if len(small) > SMALL_FILES_MAX:
            for file in small:
                self.keep(file, self._read(file))
        whole = pa.concat_tables([*self._rest.pop(partition, []), new])
        whole = whole.sort_by([(name, "ascending") for name in self._order])
        pieces = -(-whole.num_rows // FILE_ROWS)
        edges = (
            [whole.num_rows * number // pieces for number in range(pieces + 1)] if pieces else []
        )
        names = dict(zip(self._spec.partition_by, partition, strict=True))
        for start, end in pairwise(edges):
            part = PartFile(self._uri, names, self._number, self._schema)
            part.write(
                whole.slice(start, end - start).select(self._schema.names).cast(self._schema)
            )
            self.actions.append(add_action(part.close(), self._now_ns))

    def _read(self, file: DataFile) -> pa.Table:
        with open_input(self._uri, file.path) as source:
            rows = as_schema(pq.read_table(source), self._schema)
        for name, value in file.partition.items():
            field = self._spec.schema.field(name)
            rows = rows.append_column(
                field, pa.repeat(pa.scalar(value).cast(field.type), rows.num_rows)
            )
        return rows.select(self._spec.schema.names)


def without(
    uri: str,
    files: Iterable[DataFile],
    number: int,
    now_ns: int,
    *,
    keep: Callable[[pa.RecordBatch], pa.Array],
    columns: Sequence[str],
) -> Iterator[tuple[DataFile, int, list[Action]]]:
    """Yield each of some files of a table that has rows which are to go: the file, how many, and the actions that do it.

    `keep` and `columns` are as of `without_rows`; the commit is of `now_ns`, ns since 1970.
    """
    for file in files:
        changed, rest = without_rows(
            *(uri, file.path, file.partition, number), keep=keep, columns=columns
        )
        if changed:
            added = [] if rest is None else [add_action(rest, now_ns)]
            left = 0 if rest is None else rest["rows"]
            yield file, file.rows - left, [file.removal(now_ns), *added]
