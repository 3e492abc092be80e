"""Which job stands still: behind, and not a step further since. By looks in a row. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from backhaul_codec.protocol.history import Alive, JobStand
from backhaul_spark.jobs.metrics import JobsSeen, behind_of
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

ROLLUP_JOB = "rollup"


class JobsStanding:
    """Compares each look with those before it."""

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
