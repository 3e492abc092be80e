"""Take readings out of points that stand there twice because a vehicle said them again. No Spark.

Since agents mark what they say again, ingest leaves it out (`tables/said_again.py`). What stood in points before,
and what older agents send, is taken out here, a commit for each day. Of what is alike the row stays that
came first. Rollups counted it once all along.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from datetime import date
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_runtime.clock import Clock
from backhaul_spark.tables.compaction import UPKEEP_APP
from backhaul_spark.tables.delta import (
    commit_files,
    committed_ingest,
    dataset_of,
    one_at_a_time,
    open_table,
    table_uri,
)
from backhaul_spark.tables.files import DataFile, data_files, open_input
from backhaul_spark.tables.part_file import read_batches
from backhaul_spark.tables.rewrite import without
from backhaul_spark.tables.said_again import LETTER, digests, on_live
from backhaul_spark.tables.schemas import POINTS_TABLE

# Of a day that are compared at once: some 400 bytes each.
ROWS_AT_ONCE = 1 << 20
# Up to which ingest was looked.
ONCE_UP_TO = "backhaul.once_up_to"
# Stream, its sequence, and the point's index in the message.
Place: TypeAlias = tuple[str, int, int]
_PLACE = ["stream", "stream_seq", "index"]


def remove_doubles(root: str, clock: Clock) -> int:
    """Take out rows that stand twice in days into which points came on live since the last time.

    Returns how many rows.

    Raises:
        TableMissingError: nothing was ever ingested.
        TablesBusyError: somebody else takes out files at the same time. What is committed stays.
    """
    table = open_table(root, POINTS_TABLE)
    looked = int(table.metadata().configuration.get(ONCE_UP_TO) or 0)
    last = committed_ingest(table)
    new = (pc.field("letter") == LETTER) & (pc.field("ingest") > looked)
    days = dataset_of(table).to_table(columns=["date"], filter=new).column("date")
    removed = sum(_of_day(root, table, day, clock) for day in sorted(pc.unique(days).to_pylist()))
    if last > looked:
        table.alter.set_table_properties({ONCE_UP_TO: str(last)}, raise_if_not_exists=False)
    return removed


def _of_day(root: str, table: DeltaTable, day: date, clock: Clock) -> int:
    uri = table_uri(root, POINTS_TABLE.name)
    files = [file for file in data_files(table, POINTS_TABLE) if file.partition["date"] == str(day)]
    parts = -(-_count(uri, files) // ROWS_AT_ONCE)
    places: set[Place] = set()
    for part in range(parts):
        places |= doubles(_of_part(_read(uri, files), part, parts))
    number, now_ns = table.version() + 1, clock.now_ns()
    keep, columns = partial(_mask, places=places), ["letter", *_PLACE]
    found = without(uri, files if places else (), number, now_ns, keep=keep, columns=columns)
    actions = [action for _, _, each in found for action in each]
    if actions:
        with one_at_a_time(root, "maintain", "somebody else tidies up points"):
            commit_files(table, POINTS_TABLE, actions, {UPKEEP_APP: number})
    return len(places)


def _read(uri: str, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with open_input(uri, file.path) as source:
            yield from on_live(source)


def _count(uri: str, files: Iterable[DataFile]) -> int:
    """Return how many rows of letter `p` there are."""
    found = 0
    for file in files:
        with open_input(uri, file.path) as source:
            for batch in read_batches(source, ["letter"]):
                letters = batch.column("letter").cast(pa.string())
                found += pc.sum(pc.equal(letters, LETTER)).as_py() or 0
    return found


def _of_part(batches: Iterable[pa.RecordBatch], part: int, parts: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some devices alone: both rows of a pair are of one device."""
    for batch in batches:
        if parts == 1:
            yield batch
            continue
        devices = batch.column("device").dictionary_encode()
        names = devices.dictionary.cast(pa.string()).to_pylist()
        mine = pa.array([zlib.crc32(name.encode()) % parts == part for name in names], pa.bool_())
        yield batch.filter(mine.take(devices.indices))


def doubles(batches: Iterable[pa.RecordBatch]) -> set[Place]:
    """Return the places of rows of letter `p` that repeat an earlier row.

    Args:
        batches: rows of points of letter `p`, in any order.
    """
    first: dict[bytes, tuple[int, Place]] = {}
    found: set[Place] = set()
    for batch in batches:
        ingests = batch.column("ingest").to_pylist()
        places = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
        for digest, *one in zip(digests(batch), ingests, places, strict=True):
            row: tuple[int, Place] = (one[0], one[1])
            known = first.setdefault(digest, row)
            if known != row:
                first[digest] = min(known, row)
                found.add(max(known, row)[1])
    return found


def _mask(batch: pa.RecordBatch, places: set[Place]) -> pa.Array:
    """Return which rows stay."""
    mask = np.ones(batch.num_rows, dtype=bool)
    letters = batch.column("letter").cast(pa.string())
    alone = np.flatnonzero(pc.equal(letters, LETTER).to_numpy(zero_copy_only=False))
    picked = batch.take(pa.array(alone))
    columns = [picked.column(name).to_pylist() for name in _PLACE]
    mask[alone] = [place not in places for place in zip(*columns, strict=True)]
    return pa.array(mask)
