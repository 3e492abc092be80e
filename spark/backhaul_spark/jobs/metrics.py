"""How far the jobs are behind the hub's streams, and behind one another: as metrics, and which stands still. Pure.

None has a device for a label, as of the hub's (docs/metrics.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from backhaul_codec.assurance.metrics import Metric, Sample
from backhaul_codec.protocol.history import Alive, JobStand
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

INGEST_JOB, TWIN_JOB, ROLLUP_JOB = "ingest", "twin", "rollup"
READS = {INGEST_JOB: ("UP_", "IMPORT"), TWIN_JOB: ("UP_",)}
"""How the names of the streams begin that a job reads, of those that are looked at."""
_P = "backhaul_spark_"
LOOKED = Metric(f"{_P}looked_timestamp_seconds", "When all of this was seen")
HUB_UP = Metric(f"{_P}hub_up", "1 while the hub answers for its streams")
BEHIND = Metric(
    f"{_P}job_behind_messages", "Messages that a job has not read", labels=("reader", "stream")
)
INGESTS = Metric(f"{_P}ingests", "Number of the last ingest that is in the table points")
ROLLUP_BEHIND = Metric(f"{_P}rollup_behind_ingests", "Ingests that the rollups do not have yet")
WRITTEN = Metric(
    f"{_P}table_written_timestamp_seconds",
    "When a job last committed to a table",
    labels=("table",),
)
METRICS = (LOOKED, HUB_UP, BEHIND, INGESTS, ROLLUP_BEHIND, WRITTEN)


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """The findings of one look at hub, checkpoints and tables.

    Args:
        looked_ns: ns since the Unix epoch.
        last_seqs: the last sequence of each stream of the hub; None: the hub did not answer.
        read_seqs: by job, the last sequence of each stream that it has read.
        ingested: the number of the last ingest, 0 for none.
        rolled_up: the last ingest that the rollups have, 0 for none.
        written_ns: by table, when it was last written; ns since the Unix epoch.
        erased: devices that were erased from the tables.
    """

    looked_ns: int
    last_seqs: Mapping[str, int] | None = None
    read_seqs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ingested: int = 0
    rolled_up: int = 0
    written_ns: Mapping[str, int] = field(default_factory=dict)
    erased: tuple[str, ...] = ()


def behind_of(seen: JobsSeen, job: str) -> dict[str, int]:
    """Return how many messages of each stream a job has not read; nothing where the hub did not answer."""
    read, found = seen.read_seqs[job], {}
    for stream, last in (seen.last_seqs or {}).items():
        if stream.startswith(READS[job]):
            # A stream that was made anew begins at 1 again: all of it is unread.
            at = read.get(stream, 0)
            found[stream] = last - at if at <= last else last
    return found


def samples(seen: JobsSeen | None) -> Iterator[Sample]:
    """Yield all values; nothing before the first look."""
    if seen is None:
        return
    yield Sample(LOOKED, seen.looked_ns / 1e9)
    yield Sample(HUB_UP, seen.last_seqs is not None)
    for job in seen.read_seqs:
        for stream, behind in behind_of(seen, job).items():
            yield Sample(BEHIND, behind, (job, stream))
    yield Sample(INGESTS, seen.ingested)
    yield Sample(ROLLUP_BEHIND, max(seen.ingested - seen.rolled_up, 0))
    for table, written_ns in seen.written_ns.items():
        yield Sample(WRITTEN, written_ns / 1e9, (table,))


class JobsStanding:
    """Says which job is behind, and not a step further since: compares each look with those before it."""

    def __init__(self) -> None:
        self.alive = Alive()
        """What to say of the last look."""
        self._moved: dict[str, tuple[Hashable, int]] = {}
        # By job: where it was, and when it came there or was last seen behind nothing (ns).

    def take(self, seen: JobsSeen) -> None:
        """Take in a look."""
        stands = []
        for job, at, behind in _jobs(seen):
            known = self._moved.get(job)
            if known is None or known[0] != at or behind == 0:
                known = self._moved[job] = (at, seen.looked_ns)
            still_s = (seen.looked_ns - known[1]) / 1e9 if behind else 0.0
            stands.append(JobStand(job, behind, still_s))
        self.alive = Alive(seen.looked_ns, tuple(stands), dict(seen.written_ns), seen.erased)


def _jobs(seen: JobsSeen) -> Iterator[tuple[str, Hashable, int | None]]:
    """Yield each job, where it is, and how far behind."""
    for job, read in seen.read_seqs.items():
        behind = None if seen.last_seqs is None else sum(behind_of(seen, job).values())
        yield job, tuple(sorted(read.items())), behind
    # Where it has never run, nobody runs it.
    if ROLLUPS_TABLE.name in seen.written_ns:
        yield ROLLUP_JOB, seen.rolled_up, max(seen.ingested - seen.rolled_up, 0)
