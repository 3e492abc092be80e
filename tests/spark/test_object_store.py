"""The tables in an S3 bucket: no code knows of it but `tables/files.py`; delta-rs and Arrow do the rest.

Needs moto's server, which `make tools` puts into .tools/s3 (tools/setup-beside s3 by itself); MOTO_SERVER
names another.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.serve.plan import plan
from backhaul_spark.serve.series_rows import AnswerTime, SeriesReader
from backhaul_spark.serve.view import Tables
from tests.support.needed import lacking
from tests.support.rig.ports import free_port
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOTO = Path(os.environ.get("MOTO_SERVER", ROOT / ".tools/s3/bin/moto_server"))
START_S_MAX = 120.0


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A server with the bucket `fleet`, and the environment that leads there; in CI there must be one."""
    if not MOTO.exists():
        lacking(f"there is no {MOTO}: run tools/setup-beside s3")
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [str(MOTO), "-H", "127.0.0.1", "-p", str(port)]
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    quiet = subprocess.DEVNULL
    with (
        subprocess.Popen(command, stdout=quiet, stderr=quiet) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, text in environment.items():
            patch.setenv(name, text)
        try:
            _make_bucket(f"{url}/fleet")
            yield "fleet"
        finally:
            server.terminate()


def _make_bucket(url: str) -> None:
    end = SYSTEM_CLOCK.monotonic_s() + START_S_MAX
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
        except OSError:  # refused, or hung up on while it starts
            assert SYSTEM_CLOCK.monotonic_s() < end, "moto_server did not start"
        else:
            return


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_points_rollups_and_answers_in_a_bucket(bucket: str, scheme: str) -> None:
    """s3a is what Hadoop calls it, so that a root can be the checkpoint's place too."""
    root = f"{scheme}://{bucket}/{scheme}"
    ingest = Ingest(root, SYSTEM_CLOCK)
    first = task(root, ingest.tables.next_ingest, message_batch("UP_00", stored([frame(1)])))
    assert ingest.commit("app", 0, [first]).points == 2
    bodies = [frame(1), frame(2, [3.5, 4.5, 5.5])]
    again = task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    outcome = ingest.commit("app", 1, [again])  # rewrites a file without what was there before
    assert (outcome.points, outcome.repeated) == (3, 1)
    assert Rollup(root, SYSTEM_CLOCK, run_here).run().created > 0
    answer = History(root).ask(parse_series("VID-001", "battery.soc"), resolution="raw")
    assert answer.rows.column("value").to_pylist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    view = Tables(root, f"{root}/_checkpoints/ingest").view("VID-001")
    series = OneSeries("VID-001", "battery", "soc")
    reader = SeriesReader(view, series, AnswerTime(SYSTEM_CLOCK, 60.0))
    begin, end = T0_NS // 1000, T0_NS // 1000 + 10_000_000
    assert reader.windows(plan(begin, end, 10, "minute")).column("count").to_pylist() == [5]
    files = reader.files(begin, end)
    assert sum(batch.num_rows for batch in reader.points(files, begin, end)) == 5
    assert (view.marks, view.covers("bulk", 1, 2), view.covers("bulk", 1, 3)) == (None, True, False)
    arguments = ["--table-root", root, "--device", "VID-001", "--series", "battery.soc"]
    assert "5 rows" in CliRunner().invoke(cli, ["history", *arguments]).output


def test_a_second_writer_in_a_bucket_fences_the_first(bucket: str) -> None:
    """S3 refuses to write over a commit that is there (If-None-Match)."""
    root = f"s3://{bucket}/fenced"
    first = Ingest(root, SYSTEM_CLOCK)
    second = Ingest(root, SYSTEM_CLOCK)
    report = task(root, first.tables.next_ingest, message_batch("UP_00", stored([frame(1)])))
    with pytest.raises(TablesBusyError):
        first.commit("app", 0, [report])
    report = task(root, second.tables.next_ingest, message_batch("UP_00", stored([frame(1)])))
    assert second.commit("app", 0, [report]).points == 2
