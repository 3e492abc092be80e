"""Make a batch of messages part of the points table, exactly once. Driver side, without Spark.

Order of a batch, and what a crash after each step leaves behind:

1. executors write Parquet files    nobody refers to them; the batch is done again
2. files lose their repeats, and    the same
   what was said again and is not
   there yet is added in one more
3. coverage, rejects, gaps and      rows under a number that has not happened; the next start
   receipts are appended            takes them out, and the batch is done again
4. the points commit                the batch has happened: its number and Spark's batch id are in
                                    the same commit, so that a replay sees both and does nothing
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.decode.points import TIMELESS, partition_days
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.ingest.coverage import Coverage, merge_rows
from backhaul_spark.nats.dictionaries import CODE as WAITING_CODE
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import IngestTables, add_action, dataset_of, table_uri
from backhaul_spark.tables.part_file import without_messages
from backhaul_spark.tables.part_writer import MESSAGE_FACTS, PartWriter, TaskReport
from backhaul_spark.tables.said_again import not_there, note_added, notes, reported, standing
from backhaul_spark.tables.schemas import (
    COVERAGE_TABLE,
    ENDED_TABLE,
    GAPS_TABLE,
    HASHES_TABLE,
    MARKS_TABLE,
    POINTS_TABLE,
    RECEIPTS_TABLE,
    REJECTS_TABLE,
    SAID_AGAIN_TABLE,
    TableSpec,
)

# Coverage rows are merged when so many have come on top of what is needed.
LOOSE_ROWS_MAX = 10_000
# Every so many ingests the small files of the points table become large ones.
COMPACT_EVERY = 100
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of one batch. Counts of messages, except where named otherwise."""

    ingest: int
    batch: int
    messages: int = 0
    points: int = 0
    repeated: int = 0
    rejected: int = 0
    gaps: int = 0
    timeless_points: int = 0
    files: int = 0


class Ingest:
    """The writer of the ingest tables. One per process; IngestTables says how two of them exclude each other.

    Args:
        root: the table root, a directory or an object store URI.
        after: called with the name of each step when it is done; tests end the process there.
    """

    def __init__(
        self, root: str, clock: Clock, after: Callable[[str], None] = lambda step: None
    ) -> None:
        self.tables = IngestTables(root)
        self.points_uri = table_uri(root, POINTS_TABLE.name)
        self._clock = clock
        self._after = after
        held = dataset_of(self.tables.table(COVERAGE_TABLE)).to_table()
        self.coverage = Coverage.from_table(held)
        self.standing = standing(dataset_of(self.tables.table(SAID_AGAIN_TABLE)))
        self._loose_rows = held.num_rows - sum(map(len, self.coverage.lanes.values()))
        self._merge_coverage()

    def waiting(self) -> list[tuple[str, int]]:
        """Return stream and sequence of messages that were set aside for want of a dictionary, oldest first."""
        rejects = dataset_of(self.tables.table(REJECTS_TABLE))
        found = rejects.to_table(
            columns=["stream", "stream_seq"], filter=pc.field("code") == WAITING_CODE
        ).sort_by([("stream", "ascending"), ("stream_seq", "ascending")])
        columns = (found.column(name).to_pylist() for name in ("stream", "stream_seq"))
        return list(dict.fromkeys(zip(*columns, strict=True)))

    def done(self, app: str, batch: int, planned: int | None = None) -> bool:
        """Say whether the points table holds this batch already: then leave it alone.

        `planned` stands for what is to be read as this batch: one that was planned otherwise is another.
        """
        same = planned is None or self.tables.planned(app) in (-1, planned)
        return self.tables.done(app) >= batch and same

    def commit(
        self, app: str, batch: int, reports: list[TaskReport], planned: int | None = None
    ) -> BatchOutcome:
        """Decide which of the executors' files and points are new, and commit those.

        After any exception this object is of no more use: its coverage is ahead of the tables.
        """
        number = self.tables.next_ingest
        messages = pa.concat_tables([MESSAGE_FACTS.empty_table(), *(r.messages for r in reports)])
        decision = self.coverage.decide(messages)
        files = [file for report in reports for file in self._cleaned(report, decision.repeats)]
        added = self._added(reports, decision.repeats, files)
        files += self._written(added)
        self._after("files")
        self._prepare(reports, decision.rows, decision.repeats)
        self._append(SAID_AGAIN_TABLE, notes(added))
        self._append(HASHES_TABLE, decision.hashes)
        self._after("coverage")
        self.tables.commit_points(
            [add_action(file, self._clock.now_ns()) for file in files], app, batch, planned
        )
        self._after("points")
        note_added(self.standing, added)
        self._loose_rows += len(decision.rows)
        self._merge_coverage()
        if number % COMPACT_EVERY == 0:
            self._compact()
        return BatchOutcome(
            ingest=number,
            batch=batch,
            messages=decision.messages,
            points=decision.points,
            repeated=decision.repeated,
            rejected=sum(len(report.rejects) for report in reports),
            gaps=sum(len(report.gaps) for report in reports),
            timeless_points=sum(
                file["rows"] for file in files if file["partition"]["date"] == str(TIMELESS)
            ),
            files=len(files),
        )

    def _cleaned(self, report: TaskReport, repeats: dict[str, pa.Array]) -> list[dict[str, Any]]:
        streams = set(report.messages.column("stream").unique().to_pylist())
        here = {stream: seqs for stream, seqs in repeats.items() if stream in streams}
        if not here:
            return report.files
        number = self.tables.next_ingest
        files = (without_messages(self.points_uri, file, number, here) for file in report.files)
        return [file for file in files if file is not None]

    def _added(
        self,
        reports: list[TaskReport],
        repeats: dict[str, pa.Array],
        files: list[dict[str, Any]],
    ) -> pa.Table:
        """Return the repeated readings that are in points neither now nor with these files."""
        again = reported((text for report in reports for text in report.again), repeats)
        if not again.num_rows:
            return again
        return not_there(again, dataset_of(self.tables.points), self.points_uri, files)

    def _written(self, points: pa.Table) -> list[dict[str, Any]]:
        at_us = self._clock.now_ns() // 1000
        writer = PartWriter(self.points_uri, self.tables.next_ingest, at_us)
        for batch in points.to_batches():
            spread = batch.set_column(
                batch.schema.get_field_index("stored_at"),
                "stored_at",
                batch.column("stored_at").dictionary_encode(),
            )
            writer.write(spread, partition_days(spread))
        return writer.close()

    def _prepare(
        self,
        reports: list[TaskReport],
        ranges: list[dict[str, Any]],
        repeats: dict[str, pa.Array],
    ) -> None:
        self._append(COVERAGE_TABLE, ranges)
        rejects = [row for report in reports for row in report.rejects]
        new_rejects = self._not_noted(rejects)
        noted = {*map(_place, rejects)} - {*map(_place, new_rejects)}
        self._append(REJECTS_TABLE, new_rejects)
        self._append(GAPS_TABLE, [row for report in reports for row in report.gaps])
        said = {
            RECEIPTS_TABLE: [row for report in reports for row in report.receipts],
            MARKS_TABLE: [row for report in reports for row in report.marks],
            ENDED_TABLE: [row for report in reports for row in report.ended],
        }
        for spec, rows in said.items():
            new = [
                row
                for row in rows
                if _place(row) not in noted and not _among(repeats, *_place(row))
            ]
            self._append(spec, new)

    def _not_noted(self, rejects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leave out those that the table has.

        What cannot be read has no place in a lane that coverage could know it by, and comes again where
        a checkpoint or a stream went back, or with a new checkpoint.
        """
        if not rejects:
            return []
        table = self.tables.table(REJECTS_TABLE)
        table.update_incremental()  # others make large files of its small ones, and delete these
        seqs = [row["stream_seq"] for row in rejects]
        names = ["stream", "stream_seq", "stored_at"]
        place = pc.field("stream_seq")
        known = dataset_of(table).to_table(
            columns=names,
            # Bounds as well: by them files are passed over.
            filter=(place >= min(seqs)) & (place <= max(seqs)) & place.isin(seqs),
        )
        columns = [known.column(name) for name in names[:2]]
        columns.append(known.column("stored_at").cast(pa.int64()))
        noted = set(zip(*(column.to_pylist() for column in columns), strict=True))
        return [row for row in rejects if tuple(row[name] for name in names) not in noted]

    def _append(self, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
        now_us = self._clock.now_ns() // 1000
        stamp = {
            "ingest": self.tables.next_ingest,
            "ingested_at": now_us,
            "date": now_us // _DAY_US,
        }
        names = set(spec.schema.names)
        full = [
            {key: value for key, value in (row | stamp).items() if key in names} for row in rows
        ]
        self.tables.prepare(spec, pa.Table.from_pylist(full, schema=spec.schema))

    def _compact(self) -> None:
        """Make large files of small ones: a batch every 5 s leaves 35,000 a day to be opened."""
        for spec in (POINTS_TABLE, HASHES_TABLE):
            # Where somebody else does it at the same time, that is as good.
            with suppress(TablesBusyError):
                compact(self.tables.root, spec, self._clock)
            self.tables.table(spec).update_incremental()

    def _merge_coverage(self) -> None:
        if self._loose_rows <= LOOSE_ROWS_MAX:
            return
        rows = dataset_of(self.tables.table(COVERAGE_TABLE)).to_table()
        self.tables.replace(COVERAGE_TABLE, merge_rows(rows))
        self._loose_rows = 0


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["stream"], row["stream_seq"]


def _among(repeats: dict[str, pa.Array], stream: str, seq: int) -> bool:
    return stream in repeats and bool(pc.is_in(pa.scalar(seq), value_set=repeats[stream]).as_py())
