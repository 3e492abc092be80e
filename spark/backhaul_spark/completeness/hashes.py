"""Find the hashes by which messages are known that points holds. Driver side, no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.arrays import Ints
from backhaul_spark.decode.chained import AGAIN, FIRST, LANE, numbers
from backhaul_spark.ingest.coverage import LaneKey
from backhaul_spark.tables.delta import dataset_of, open_if_there
from backhaul_spark.tables.files import data_files
from backhaul_spark.tables.schemas import HASHES_TABLE


@dataclass(slots=True)
class Sought:
    """Messages of one lane whose hashes are wanted."""

    seqs: Ints
    """Ascending, each once."""
    found: Ints = field(init=False)
    """Their hashes, 0 where none was found (yet)."""

    def __post_init__(self) -> None:
        self.found = np.zeros(len(self.seqs), np.int64)

    def of(self, seqs: Ints) -> Ints:
        """Return the hashes of some of these messages, as far as they were found.

        `seqs`: (n,) int64; the result is (n,) int64.
        """
        return self.found[np.searchsorted(self.seqs, seqs)]

    def take(self, los: Ints, his: Ints, hashes: pa.Array) -> None:
        """Take in rows of the table `hashes` of this lane; `los` and `his`, (rows,) int64, are each one's first and last seq."""
        starts, ends = np.searchsorted(self.seqs, los), np.searchsorted(self.seqs, his + 1)
        for row in np.flatnonzero(starts < ends).tolist():
            here = slice(starts[row], ends[row])
            said = hashes[row].as_py()
            found = numbers(said)[self.seqs[here] - los[row]]
            self.found[here] = np.where(self.found[here] == 0, found, self.found[here])


class HashTable:
    """The table `hashes` of a table root, up to one ingest.

    Args:
        root: the table root. One in which nothing of version 2 has been ingested yet may lack the table.
    """

    def __init__(self, root: str, target: int) -> None:
        self._table = open_if_there(root, HASHES_TABLE)
        self._target = target

    def came_again(self, wanted: pc.Expression) -> pa.Table:
        """Return the rows of messages whose place was taken when they came, by a filter on the columns."""
        if self._table is None:
            return HASHES_TABLE.schema.empty_table()
        where = (pc.field("came") == AGAIN) & self._so_far & wanted
        return dataset_of(self._table, HASHES_TABLE).to_table(filter=where)

    def find(self, sought: dict[LaneKey, Sought], oldest: date | None = None) -> None:
        """Look for the hashes of messages that are held, the newest day first.

        Args:
            sought: takes in what is found.
            oldest: the day of ingest at which to give up; None: look through all there is.
        """
        if self._table is None:
            return
        files = data_files(self._table, HASHES_TABLE)
        days = {each.partition["date"] for each in files if each.partition["came"] == FIRST}
        for day in sorted(days, reverse=True):
            missing = {key: each for key, each in sought.items() if not each.found.all()}
            if not missing or (oldest is not None and day < str(oldest)):
                return
            for key, rows in _by_lane(self._day(self._table, day, missing)):
                if key in missing:
                    los, his = (rows.column(name).to_numpy() for name in ("lo", "hi"))
                    missing[key].take(los, his, rows.column("hashes"))

    @property
    def _so_far(self) -> pc.Expression:
        return pc.field("ingest") <= self._target

    def _day(
        self, table: DeltaTable, day: str, sought: Mapping[LaneKey, Sought]
    ) -> Iterator[pa.RecordBatch]:
        devices = pa.array(sorted({key.device for key in sought}), pa.string())
        where = (pc.field("came") == FIRST) & (pc.field("date") == date.fromisoformat(day))
        where &= pc.field("device").isin(devices) & self._so_far
        where &= pc.field("lo") <= max(int(each.seqs[-1]) for each in sought.values())
        where &= pc.field("hi") >= min(int(each.seqs[0]) for each in sought.values())
        names = [*LANE, "lo", "hi", "hashes"]
        batches: Iterator[pa.RecordBatch]
        batches = dataset_of(table, HASHES_TABLE).to_batches(columns=names, filter=where)
        return batches


def _by_lane(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[LaneKey, pa.Table]]:
    for batch in batches:
        rows = pa.table(batch.sort_by([(name, "ascending") for name in LANE]))
        start = 0
        counts = rows.group_by(list(LANE), use_threads=False).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            part = rows.slice(start, row["count_all"]).combine_chunks()
            start += part.num_rows
            yield LaneKey(row["device"], row["lane"], row["epoch"]), part


class Repeats(NamedTuple):
    """Messages of one lane whose place was taken when they came, in any order."""

    seqs: Ints
    hashes: Ints
    links: Ints
    """The hashes of the messages before them, by their own word; 0 where not known."""


def repeats(rows: pa.Table) -> dict[LaneKey, Repeats]:
    """Return the contents of rows of the table `hashes`, by lane."""
    found: dict[LaneKey, list[Repeats]] = {}
    for row in rows.select([*LANE, "lo", "hi", "hashes", "link"]).to_pylist():
        key = LaneKey(row["device"], row["lane"], row["epoch"])
        hashes = numbers(row["hashes"])
        # Inside a row each message links to the one before it.
        links = np.append(row["link"] or 0, hashes[:-1])
        seqs = np.arange(row["lo"], row["hi"] + 1)
        found.setdefault(key, []).append(Repeats(seqs, hashes, links))
    return {
        key: Repeats(*map(np.concatenate, zip(*parts, strict=True))) for key, parts in found.items()
    }
