"""How far each job is: from its checkpoint, the tables, and the hub's streams. No Spark, no JVM.

The jobs read streams by sequence and have no consumers, so the hub does not know how far they are. Their
checkpoints do: a file `offsets/N` a batch, and beside it `commits/N` once the batch is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from deltalake import DeltaTable
from pyarrow import fs  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.checkpoint import FILE, checkpoint_uri, with_scheme
from backhaul_spark.errors import HubServerError
from backhaul_spark.ingest.checkpoint_files import end_of_batch
from backhaul_spark.jobs.erase import erased_devices
from backhaul_spark.jobs.metrics import INGEST_JOB, TWIN_JOB, JobsSeen
from backhaul_spark.nats.direct_get import list_streams
from backhaul_spark.nats.endpoint import Endpoint
from backhaul_spark.rollup.rollup import ROLLUP_APP
from backhaul_spark.tables.delta import committed_ingest, open_if_there
from backhaul_spark.tables.files import filesystem
from backhaul_spark.tables.schemas import (
    ALERTS_TABLE,
    ANOMALIES_TABLE,
    FLEET_DAYS_TABLE,
    HOUR_REPORTS_TABLE,
    POINTS_TABLE,
    ROLLUPS_TABLE,
    TWINS_TABLE,
)

WATCHED = (
    POINTS_TABLE,
    HOUR_REPORTS_TABLE,
    ROLLUPS_TABLE,
    ANOMALIES_TABLE,
    FLEET_DAYS_TABLE,
    ALERTS_TABLE,
    TWINS_TABLE,
)


class JobsProgress:
    """Looks at the jobs of one table root.

    Args:
        endpoint: the hub, with a login that lists its streams.
        patterns: which streams the jobs read.
        checkpoint: of ingest, if not beside the tables.
        said: is called when the hub does not answer, with why, once for each reason; and with "" when it does again.
    """

    def __init__(
        self,
        root: str,
        endpoint: Endpoint,
        patterns: list[str],
        clock: Clock,
        checkpoint: str | None = None,
        said: Callable[[str], None] = lambda said: None,
    ) -> None:
        self._said, self._trouble = said, ""
        self._root, self._endpoint, self._patterns, self._clock = root, endpoint, patterns, clock
        self._checkpoints = {
            INGEST_JOB: with_scheme(checkpoint) if checkpoint else checkpoint_uri(root, INGEST_JOB),
            TWIN_JOB: checkpoint_uri(root, TWIN_JOB),
        }

    def look(self) -> JobsSeen:
        """Look once. A hub that does not answer is a finding, and no error."""
        tables = {spec.name: open_if_there(self._root, spec) for spec in WATCHED}
        points, rollups = tables[POINTS_TABLE.name], tables[ROLLUPS_TABLE.name]
        read = {job: read_seqs(uri) for job, uri in self._checkpoints.items()}
        return JobsSeen(
            self._clock.now_ns(),
            self._last_seqs(),
            # A job that has never run here is not behind: nobody runs it.
            {job: seqs for job, seqs in read.items() if seqs is not None},
            committed_ingest(points) if points is not None else 0,
            (rollups.transaction_version(ROLLUP_APP) or 0) if rollups is not None else 0,
            {name: _written_ns(table) for name, table in tables.items() if table is not None},
            tuple(name for name, row in erased_devices(self._root).items() if row["done_at"]),
        )

    def _last_seqs(self) -> Mapping[str, int] | None:
        trouble, found = "", {}
        try:
            found = list_streams(self._endpoint, self._patterns)
        except HubServerError as error:
            trouble = str(error)
        if trouble != self._trouble:
            self._trouble = trouble
            self._said(trouble)
        if trouble:
            return None
        return {name: info.last_seq for name, info in found.items()}


def read_seqs(checkpoint: str) -> dict[str, int] | None:
    """Return the last sequence of each stream that a query has done with, by its checkpoint's URI; None if it never ran."""
    system, root = filesystem(checkpoint.removeprefix(FILE))
    with suppress(FileNotFoundError):
        done = [
            int(each.base_name)
            for each in system.get_file_info(fs.FileSelector(f"{root}/commits"))
            if each.base_name.isdigit()
        ]
        if done:
            return {name: mark.seq for name, mark in end_of_batch(checkpoint, max(done)).items()}
    return None


def _written_ns(table: DeltaTable) -> int:
    return int(table.history(1)[0]["timestamp"]) * 1_000_000
