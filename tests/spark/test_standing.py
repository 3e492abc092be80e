"""Which job stands still, by looks in a row."""

from __future__ import annotations

from typing import Any

from backhaul_codec.protocol.history import JobStand
from backhaul_spark.jobs.metrics import JobsSeen, JobsStanding

S = 10**9


def look(standing: JobsStanding, at_s: int, **seen: Any) -> list[JobStand]:
    standing.take(JobsSeen(at_s * S, **seen))
    assert standing.alive.looked_ns == at_s * S
    return list(standing.alive.jobs)


def test_a_job_that_is_behind_and_does_not_move_stands_still() -> None:
    jobs = JobsStanding()
    last = {"UP_00": 10, "UP_01": 5, "IMPORT_00": 7}
    read = {"ingest": {"UP_00": 10, "UP_01": 5, "IMPORT_00": 7}}
    assert look(jobs, 0, last_seqs=last, read_seqs=read) == [JobStand("ingest", 0, 0)]
    last["UP_01"] = 9
    assert look(jobs, 60, last_seqs=last, read_seqs=read) == [JobStand("ingest", 4, 60)]
    assert look(jobs, 90, last_seqs=last, read_seqs=read) == [JobStand("ingest", 4, 90)]
    read = {"ingest": read["ingest"] | {"UP_01": 6}}
    assert look(jobs, 100, last_seqs=last, read_seqs=read) == [JobStand("ingest", 3, 0)]
    assert look(jobs, 130, last_seqs=None, read_seqs=read) == [JobStand("ingest", None, 0)]
    assert look(jobs, 160, last_seqs=last, read_seqs=read) == [JobStand("ingest", 3, 60)]


def test_a_job_is_behind_on_what_it_reads_alone_and_one_that_never_ran_is_not() -> None:
    jobs = JobsStanding()
    assert look(jobs, 1, last_seqs={"UP_00": 3}) == []
    last = {"UP_00": 3, "IMPORT_00": 70}
    assert look(jobs, 2, last_seqs=last, read_seqs={"twin": {"UP_00": 1}}) == [
        JobStand("twin", 2, 0)
    ]
    assert look(jobs, 3, ingested=5) == []
    written = {"rollups": 1}
    assert look(jobs, 4, ingested=5, rolled_up=2, written_ns=written) == [JobStand("rollup", 3, 0)]
    assert look(jobs, 64, ingested=6, rolled_up=2, written_ns=written) == [
        JobStand("rollup", 4, 60)
    ]
    assert look(jobs, 70, ingested=6, rolled_up=6, written_ns=written) == [JobStand("rollup", 0, 0)]
    assert jobs.alive.written_ns == written
