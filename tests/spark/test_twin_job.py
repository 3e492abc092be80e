"""`backhaul-spark twin` as a process of its own: a real server, a JVM, a kill in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from backhaul_codec import Point, encode_frame, encode_point
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.nats.direct_get import read_range
from backhaul_spark.nats.endpoint import endpoint_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spark_server import HubServer

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.timeout(600)]
DEADLINE_S = 240


class Job:
    """The job on one hub and one table root; started and killed as often as wanted."""

    def __init__(self, hub: HubServer, directory: Path) -> None:
        self.hub = hub
        self.root = directory / "tables"
        self.login = directory / "control.toml"
        self.login.write_text('user = "control"\npassword = "all"\n')
        # However slow the machine is, nothing is late, and nobody silent.
        self.config = directory / "twin.toml"
        self.config.write_text(
            "[twin]\nbuckets = 2\ntick_s = 1\nlate_after_s = 36000\n"
            "[rules.silence]\nafter_s = 36000\n"
        )
        hub.make_stream("TWIN_EVENTS", subjects="fleet.prod.veh.*.evt.alert.>")
        # The server knows a repeat for two minutes by itself: less than a slow machine takes to start again.
        hour = {"duplicate_window": 3600 * 10**9}
        hub.make_stream("TWIN_CMD", subjects="fleet.prod.veh.*.cmd.*", **hour)
        hub.make_stream("DOWN_00", subjects="in.>")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        program = Path(sys.executable).with_name("backhaul-spark")
        command = [str(program), "twin", "--trigger", "300ms", "--table-root", str(self.root)]
        command += ["--servers", self.hub.url, "--credentials", str(self.login)]
        command += ["--config", str(self.config), "--env", "prod"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
            try:
                yield job
            finally:
                job.kill()

    def heat(self, device: str, seq: int, *temps: float) -> None:
        """Have a device say temperatures, measured just now."""
        now = time.time_ns()
        points = [Point("battery", "temp", now + n, temp) for n, temp in enumerate(temps)]
        self.hub.put([encode_frame(points, epoch=1, seq=seq)], device=device)

    def limit(self, device: str, value: float) -> None:
        """Write a device's threshold at the hub."""
        point = Point("config", "temp_max", time.time_ns(), value, origin="hub")
        body = encode_point(point, epoch=0, seq=0)
        self.hub.put_raw(f"in.{device}.p.config.temp_max.%", body)

    def published(self, stream: str) -> list[dict[str, object]]:
        endpoint = endpoint_from({"servers": self.hub.url, "user": "control", "password": "all"})
        parts = read_range(endpoint, stream, 1, 1_000_000)
        return [json.loads(body) for part in parts for body in part.bodies]

    def alerts(self) -> Counter[tuple[str, str]]:
        """Count what was published, by device and kind."""
        found = self.published("TWIN_EVENTS")
        return Counter((str(alert["vid"]), str(alert["kind"])) for alert in found)

    def wait_for(self, device: str, kind: str) -> None:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
        while not self.alerts()[device, kind]:
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"no alert of {device}: {self.alerts()}"
            SYSTEM_CLOCK.sleep(0.2)


def test_alerts_and_commands_come_once_over_a_kill_and_state_is_kept(
    hub_server: HubServer, tmp_path: Path
) -> None:
    job = Job(hub_server, tmp_path)
    with job.running() as process:
        job.limit("OWN", 90)
        job.heat("OWN", 1, 80, 80, 80)  # below its own threshold
        job.heat("SLOW", 1, 70, 70)
        for number in range(5):
            job.heat(f"A{number}", 1, 70, 70, 70)
        job.wait_for("A4", "raised")
        assert not job.alerts()["OWN", "raised"]
        for number in range(20):
            job.heat(f"B{number}", 1, 70, 70, 70)
        process.send_signal(signal.SIGKILL)
    job.heat("A0", 1, 70, 70, 70)  # a repeat, by its place
    job.heat("SLOW", 2, 70)  # the third in a row
    with job.running() as process:
        job.wait_for("SLOW", "raised")
        job.wait_for("B19", "raised")
        job.limit("OWN", 60)
        job.heat("A1", 2, 20)
        job.wait_for("A1", "cleared")
        job.heat("OWN", 2, 80, 80, 80)
        job.wait_for("OWN", "raised")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, read(process.stderr)
    raised = {"SLOW", "OWN", *(f"A{n}" for n in range(5)), *(f"B{n}" for n in range(20))}
    expected = Counter((device, "raised") for device in raised) + Counter([("A1", "cleared")])
    assert job.alerts() == expected
    commands = Counter(str(command["id"]) for command in job.published("TWIN_CMD"))
    assert set(commands.values()) == {1}
    table = DeltaTable(str(job.root / "alerts")).to_pyarrow_table().to_pylist()
    assert Counter((row["device"], row["kind"]) for row in table) == expected
    twins = DeltaTable(str(job.root / "twins")).to_pyarrow_table().to_pylist()
    assert {row["device"] for row in twins} >= {"OWN", "A1"}


def read(stream: IO[str] | None) -> str:
    return stream.read() if stream else ""
