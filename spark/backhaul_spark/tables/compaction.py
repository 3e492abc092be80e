"""Make large files of the small ones of a table. The rows stay the same; those of points are put in order. No Spark.

Not delta-rs's own compaction: it checks nothing that two of them would trip over, and two at a
time each put the same rows into a new file (ADR 27). A commit here moves the id UPKEEP_APP, so of
two that work at the same time one is refused, while appends pass by both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_runtime.clock import Clock
from backhaul_spark.tables.by_series import ASCENDING, NAMES, NAMES_MAX, in_order
from backhaul_spark.tables.delta import (
    add_action,
    commit_files,
    one_at_a_time,
    open_table,
    table_uri,
)
from backhaul_spark.tables.files import DataFile, data_files, open_input
from backhaul_spark.tables.part_file import (
    PartFile,
    as_schema,
    by_dictionary,
    read_batches,
    row_groups,
    stored_schema,
)
from backhaul_spark.tables.schemas import POINTS_TABLE, TableSpec

# Carried by everything that takes files out of a table that others append to.
UPKEEP_APP = "backhaul-upkeep"
FILE_BYTES = 128 << 20
# Of rows that are nearly alike a file would hold more than is merged in bounded memory (by_series.py).
FILE_ROWS = 1 << 24


def compact(root: str, spec: TableSpec, clock: Clock) -> tuple[int, int]:
    """Rewrite small files, a commit for each partition that has several; return (before, after).

    Raises:
        TableMissingError: the table is not there.
        TablesBusyError: somebody else takes out files at the same time. What is committed stays.
    """
    table = open_table(root, spec)
    before = after = 0
    for small in bundles(data_files(table, spec)):
        before += len(small)
        after += 1
        _merge(root, table, spec, small, clock)
    return before, after


def bundles(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yield files of one partition that together give one of about FILE_BYTES or FILE_ROWS, two or more."""
    partitions: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2:
            partitions.setdefault(tuple(file.partition.values()), []).append(file)
    for _, small in sorted(partitions.items()):
        bundle: list[DataFile] = []
        size = rows = 0
        for file in small:
            if size + file.size > FILE_BYTES or rows + file.rows > FILE_ROWS:
                if len(bundle) > 1:
                    yield bundle
                bundle, size, rows = [], 0, 0
            bundle.append(file)
            size, rows = size + file.size, rows + file.rows
        if len(bundle) > 1:
            yield bundle


def _merge(
    root: str, table: DeltaTable, spec: TableSpec, small: list[DataFile], clock: Clock
) -> None:
    uri = table_uri(root, spec.name)
    schema = by_dictionary(stored_schema(spec))
    number = table.version() + 1
    batches = _batches(uri, small, schema)
    ordered = spec is POINTS_TABLE and _few_names(uri, small)
    part = PartFile(uri, small[0].partition, number, schema, ASCENDING if ordered else ())
    for rows in in_order(batches) if ordered else row_groups(batches):
        part.write(rows)
    now_ns = clock.now_ns()
    added = add_action(part.close(), now_ns, data_change=False)
    removed = [each.removal(now_ns, data_change=False) for each in small]
    with one_at_a_time(root, "maintain", f"somebody else tidies up {spec.name}"):
        commit_files(table, spec, [added, *removed], {UPKEEP_APP: number})


def _batches(uri: str, files: list[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with open_input(uri, file.path) as source:
            for batch in read_batches(source):
                yield from as_schema(pa.Table.from_batches([batch]), schema).to_batches()


def _few_names(uri: str, files: list[DataFile]) -> bool:
    """Say whether files have so few names that their rows are sorted in bounded memory."""
    names: set[str | None] = set()
    for file in files:
        with open_input(uri, file.path) as source:
            for batch in read_batches(source, NAMES):
                for column in batch.columns:
                    names.update(column.dictionary.to_pylist())
                if len(names) > NAMES_MAX:
                    return False
    return True
