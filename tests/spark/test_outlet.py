"""The twin job's outlet at a real server: killed at each step, and at moments that a seed chooses."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.direct_get import Reader
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.sink.outgoing import digest_of
from backhaul_spark.tables.delta import open_table
from backhaul_spark.tables.schemas import ALERTS_TABLE, TWINS_TABLE
from tests.support.nats_server import NatsServer
from tests.support.sink_job import ALERTS_EACH, DEVICES, alerts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.nats

STEPS = ("alerts", "commands", "table alerts", "table twins")
BATCHES = len(STEPS) + 1


class Job:
    """A twin job that is started again and again, and a hub's two streams."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        self.directory = directory
        self._server = server
        self.began_ns = time.time_ns()
        directory.mkdir()
        (directory / "began_ns").write_text(str(self.began_ns))
        for name, what, more in (
            ("TWIN_EVENTS", "evt.alert", {}),
            ("TWIN_CMD", "cmd", {"retention": "workqueue", "discard": "new"}),
        ):
            config = {
                "name": name,
                "subjects": [f"fleet.prod.veh.*.{what}.>"],
                "allow_direct": True,
            }
            self._request(f"$JS.API.STREAM.CREATE.{name}", config | more)

    def run(self, die_after: str = "never", batches: int = BATCHES) -> int:
        """Run it to its end, whichever that is; return its status."""
        module = "tests.support.sink_job"
        arguments = [self._server.url, str(self.directory), str(batches), die_after]
        command = [sys.executable, "-m", module, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                process.stdout.readline()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(120)
            finally:  # also where this test's time is over
                process.kill()
            return process.wait()

    def check(self, batches: int = BATCHES) -> None:
        """Require everything exactly once, whether or not a batch was done again."""
        some = range(batches)
        must = {each.id for batch in some for each in alerts_of(batch, self.began_ns)}
        more = {each.id for batch in some for each in alerts_of(batch, self.began_ns, again=True)}
        published = [json.loads(body) for body in self._bodies("TWIN_EVENTS")]
        ids = [each["id"] for each in published]
        assert len(ids) == len(set(ids))
        assert must <= set(ids) <= more
        commanded = [json.loads(body)["id"] for body in self._bodies("TWIN_CMD")]
        assert sorted(commanded) == sorted(
            digest_of(each["id"]) for each in published if "command" in each
        )
        root = str(self.directory / "tables")
        kept = open_table(root, ALERTS_TABLE).to_pyarrow_table()["id"].to_pylist()
        assert sorted(kept) == sorted(ids)
        twins = open_table(root, TWINS_TABLE).to_pyarrow_table().to_pylist()
        assert [each["health"] for each in twins] == [batches - 1] * DEVICES

    def _request(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = Connection(endpoint_from({"servers": self._server.url}))
        _, answer = connection.request(subject, json.dumps(body).encode())
        connection.close()
        said: dict[str, Any] = json.loads(answer)
        assert "error" not in said, said
        return said

    def _bodies(self, stream: str) -> list[bytes]:
        connection = Connection(endpoint_from({"servers": self._server.url}))
        reader = Reader(connection)
        info = reader.streams([stream])[stream]
        found = [
            body
            for part in reader.read(stream, info.first_seq, info.last_seq)
            for body in part.bodies
        ]
        connection.close()
        return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    server = NatsServer(tmp_path / "hub")
    server.start()
    try:
        yield Job(tmp_path / "job", server)
    finally:
        server.stop()


def test_killed_after_each_step_it_says_everything_once(job: Job) -> None:
    for batch, step in enumerate(STEPS):
        assert job.run(f"{step} {batch}") == -signal.SIGKILL
    assert job.run() == 0
    job.check()


def test_killed_at_any_moment_it_says_everything_once(job: Job) -> None:
    seed = random.randrange(1 << 32)
    chance, batches = random.Random(seed), 15
    # The job's own alarm: whoever would kill it from here may come when it is done.
    ends = [job.run(f"{chance.uniform(0.001, 0.5):f}", batches) for _ in range(2)]
    assert job.run(batches=batches) == 0, seed
    job.check(batches)
    assert -signal.SIGALRM in ends, f"{batches} batches of {ALERTS_EACH} alerts are too few"
