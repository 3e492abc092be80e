"""Ingest in a real Spark session: availableNow over everything that can be wrong with a stream."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.checkpoint import checkpoint_uri
from backhaul_spark.errors import BackhaulSparkError
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from backhaul_spark.ingest.checkpoint_files import checkpoint_id, end_of_batch
from backhaul_spark.ingest.stream import IngestQuery
from backhaul_spark.jobs.progress import JobsProgress
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rollup.rollup import Rollup, run_on
from backhaul_spark.tables.as_dataframe import read_table
from backhaul_spark.tables.delta import committed_ingest
from backhaul_spark.tables.schemas import INGEST_TABLES, TABLES
from tests.support.every_table import write_every_table
from tests.support.spark_frames import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.spark_server import HubServer

pytestmark = [pytest.mark.spark, pytest.mark.nats]


class Runs:
    """Runs of `ingest --once` against one hub and one table root."""

    def __init__(self, spark: SparkSession, hub: HubServer, root: Path) -> None:
        self.spark, self.hub, self.root = spark, hub, str(root)

    def once(self, **source: str) -> list[BatchOutcome]:
        """Ingest what is there, as a process of its own would; return the batches."""
        outcomes: list[BatchOutcome] = []
        ingest = Ingest(self.root, SYSTEM_CLOCK)
        options = self.hub.options | source
        IngestQuery(self.spark, ingest, options, SYSTEM_CLOCK, outcomes.append).run(None)
        return outcomes

    def seqs(self) -> Counter[int]:
        """Return how many points each sequence has."""
        table = DeltaTable(f"{self.root}/points").to_pyarrow_table(columns=["seq"])
        return Counter(table.column("seq").to_pylist())

    def commits(self) -> int:
        """Return how many commits the tables of ingest have seen."""
        return sum(DeltaTable(f"{self.root}/{spec.name}").version() for spec in INGEST_TABLES)

    def gaps(self) -> list[tuple[int, int, str]]:
        rows = DeltaTable(f"{self.root}/source_gaps").to_pyarrow_table().to_pylist()
        return [(row["lo"], row["hi"], row["code"]) for row in rows]


@pytest.fixture
def runs(spark: SparkSession, hub_server: HubServer, tmp_path: Path) -> Runs:
    return Runs(spark, hub_server, tmp_path / "tables")


def frames(*seqs: int) -> list[bytes]:
    return [frame(seq) for seq in seqs]


def twice(*seqs: int) -> Counter[int]:
    return Counter(dict.fromkeys(seqs, 2))


def test_every_point_once_over_batches_repeats_garbage_and_restarts(runs: Runs) -> None:
    runs.hub.put([*frames(1, 2, 2), b"garbage", *frames(3, 1, 4, 5)])
    outcomes = runs.once(maxMessages="3")
    assert len(outcomes) == 3
    assert sum(o.messages for o in outcomes) == 5
    assert sum(o.repeated for o in outcomes) == 2
    assert sum(o.rejected for o in outcomes) == 1
    assert runs.seqs() == twice(1, 2, 3, 4, 5)
    assert runs.once() == []
    runs.hub.put(frames(5, 6))
    [outcome] = runs.once()
    assert (outcome.messages, outcome.repeated) == (1, 1)
    assert runs.seqs() == twice(1, 2, 3, 4, 5, 6)
    # Who reads UP beside it finds up to where it was read.
    checkpoint = checkpoint_uri(runs.root, "ingest")
    batch = DeltaTable(f"{runs.root}/points").transaction_version(checkpoint_id(checkpoint))
    assert batch is not None
    mark = end_of_batch(checkpoint, batch)["UP_00"]
    assert (mark.seq, bool(mark.created)) == (10, True)


def test_how_far_ingest_is_stands_in_its_checkpoint(runs: Runs) -> None:
    runs.hub.put(frames(1, 2, 3))
    endpoint = endpoint_from(runs.hub.options)
    said: list[str] = []
    progress = JobsProgress(runs.root, endpoint, ["UP_*"], SYSTEM_CLOCK, said=said.append)
    before = progress.look()
    assert (before.last_seqs, before.read_seqs, before.written_ns) == ({"UP_00": 3}, {}, {})
    runs.once()
    runs.hub.put(frames(4, 5))
    seen = progress.look()
    assert (seen.last_seqs, seen.read_seqs) == ({"UP_00": 5}, {"ingest": {"UP_00": 3}})
    assert (seen.ingested, seen.rolled_up) == (
        committed_ingest(DeltaTable(f"{runs.root}/points")),
        0,
    )
    assert before.looked_ns < seen.written_ns["points"] <= seen.looked_ns
    runs.hub.server.stop()
    assert [progress.look().last_seqs, progress.look().last_seqs] == [None, None]
    assert len(said) == 1
    assert said[0]


def test_a_recreated_stream_and_a_retention_gap_are_recorded_and_reading_goes_on(
    runs: Runs,
) -> None:
    runs.hub.put(frames(1, 2, 3))
    runs.once()
    runs.hub.put(frames(4, 5, 6))
    runs.hub.purge_below(6)
    runs.once()
    assert runs.seqs() == twice(1, 2, 3, 6)
    assert runs.gaps() == [(4, 5, "gap_retention")]
    runs.hub.delete_stream()
    runs.hub.make_stream()
    runs.hub.put(frames(4, 5, 6))  # what the vehicle sends again
    [outcome] = runs.once()
    assert (outcome.messages, outcome.repeated, outcome.gaps) == (2, 1, 1)
    assert runs.seqs() == twice(1, 2, 3, 4, 5, 6)
    assert sorted(runs.gaps()) == [(4, 5, "gap_retention"), (7, 6, "gap_recreated")]


def test_a_stream_that_is_gone_stops_ingest_with_its_name(runs: Runs) -> None:
    runs.hub.put(frames(1))
    runs.once()
    runs.hub.delete_stream()
    with pytest.raises(BackhaulSparkError, match="there is no stream UP_00") as caught:
        runs.once()
    assert "new checkpoint" in caught.value.hint


def test_a_shard_that_comes_later_is_read_from_its_start(runs: Runs) -> None:
    runs.hub.delete_stream()
    runs.hub.make_stream(subjects="up.VID-001.>")
    runs.hub.put(frames(1))
    runs.once()
    runs.hub.make_stream("UP_01", subjects="up.VID-002.>")
    runs.hub.put(frames(7, 8), device="VID-002")
    assert sum(outcome.messages for outcome in runs.once()) == 2
    assert runs.seqs() == twice(1, 7, 8)


def test_rollups_run_on_the_executors(runs: Runs) -> None:
    runs.hub.put(frames(*range(1, 40)))
    runs.once()
    first = Rollup(runs.root, SYSTEM_CLOCK, run_on(runs.spark)).run()
    assert (first.created, first.restated) == (4, 0)
    runs.hub.put(frames(40))
    runs.once()
    second = Rollup(runs.root, SYSTEM_CLOCK, run_on(runs.spark)).run()
    assert (second.created, second.restated) == (0, 3)
    points, rollups = (read_table(runs.spark, runs.root, name) for name in ("points", "rollups"))
    assert points.where("date = '2026-01-01' and node = 'battery'").count() == 80
    assert {row.version for row in rollups.where("width = '1h'").collect()} == {2}
    assert read_table(runs.spark, runs.root, "rejects").count() == 0


def test_sql_reads_every_table(spark: SparkSession, tmp_path: Path) -> None:
    write_every_table(tmp_path)
    for spec in TABLES:
        read_table(spark, str(tmp_path), spec.name).createOrReplaceTempView(spec.name)
        names = ", ".join(f"`{name}`" for name in spec.schema.names)
        found = spark.sql(f"SELECT {names} FROM {spec.name}").toArrow().cast(spec.schema)
        keys = [(name, "ascending") for name in spec.schema.names]
        written = DeltaTable(str(tmp_path / spec.name)).to_pyarrow_table().cast(spec.schema)
        assert found.num_rows > 0
        assert found.sort_by(keys) == written.sort_by(keys), spec.name


@pytest.mark.parametrize("moment", ["coverage", "points"])
def test_the_driver_killed_between_commits_loses_and_doubles_nothing(
    runs: Runs, moment: str
) -> None:
    runs.hub.put(frames(1, 2, 3, 2))
    program = (
        "import os, signal\n"
        "from backhaul_runtime.clock import SYSTEM_CLOCK\n"
        "from backhaul_spark.ingest.batch import Ingest\n"
        "from backhaul_spark.session import spark_session\n"
        "from backhaul_spark.ingest.stream import IngestQuery\n"
        f"die = lambda step: step == {moment!r} and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"ingest = Ingest({runs.root!r}, SYSTEM_CLOCK, die)\n"
        f"IngestQuery(spark_session(), ingest, {runs.hub.options!r}, SYSTEM_CLOCK).run(None)\n"
    )
    died = subprocess.run([sys.executable, "-c", program], check=False, timeout=250)
    assert died.returncode == -signal.SIGKILL
    runs.hub.put(frames(3, 4))
    runs.once()
    assert runs.seqs() == twice(1, 2, 3, 4)
    assert Path(checkpoint_uri(runs.root, "ingest").removeprefix("file://")).exists()


def test_a_checkpoint_that_went_back_in_time_takes_no_batch_for_another(runs: Runs) -> None:
    """A power cut, or a copy put back: under a batch's number Spark plans what has come since as well."""
    checkpoint = Path(checkpoint_uri(runs.root, "ingest").removeprefix("file://"))
    runs.hub.put(frames(1, 2))
    runs.once()
    runs.hub.put(frames(3))
    runs.once()
    for log in ("offsets", "commits"):
        (checkpoint / log / "1").unlink()
    runs.hub.put(frames(4))
    [outcome] = runs.once()
    assert (outcome.messages, outcome.repeated) == (1, 1)
    assert runs.seqs() == twice(1, 2, 3, 4)
    # As Spark leaves it when it is killed before it notes that a batch is done.
    (checkpoint / "commits" / "1").unlink()
    assert runs.once() == []
    assert runs.seqs() == twice(1, 2, 3, 4)


def test_a_service_outlives_its_hub_and_ends_on_sigterm(runs: Runs) -> None:
    runs.hub.put(frames(1))
    program = Path(sys.executable).with_name("backhaul-spark")
    command = [str(program), "ingest", "--every", "500ms", "--table-root", runs.root]
    command += ["--servers", runs.hub.url, "--credentials", str(runs.hub.credentials)]
    with subprocess.Popen([*command, "--json"], stdout=-1, stderr=-1, text=True) as service:
        try:
            assert service.stderr is not None
            wait_for(service.stderr, "2 points from 1 messages")
            runs.hub.server.kill()
            wait_for(service.stderr, "trying again")
            commits = runs.commits()
            for _ in range(2):
                wait_for(service.stderr, "trying again")
            assert runs.commits() == commits, "a night without the hub leaves no commits behind"
            runs.hub.server.start()
            runs.hub.put(frames(2))
            wait_for(service.stderr, "2 points from 1 messages")
            service.send_signal(signal.SIGTERM)
            out, _ = service.communicate(timeout=120)
        finally:
            service.kill()
    assert service.returncode == 0
    assert json.loads(out)["points"] == 4
    assert runs.seqs() == twice(1, 2)


def wait_for(lines: IO[str], text: str) -> None:
    """Read until a line holds the text; the test's own timeout is the deadline."""
    for line in lines:
        if text in line:
            return
    pytest.fail(f"the service ended before it said {text!r}")
