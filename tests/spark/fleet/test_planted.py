"""Faults planted in a simulated fleet are found and named, over the whole way from UP to a finding."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli as hub_cli
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli._options import HubPlace
from backhaul_spark.cli.main import cli
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.direct_get import close_connections, list_streams, read_range
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables.delta import open_table
from backhaul_spark.tables.schemas import POINTS_TABLE
from tests.support.planted_faults import hub_running, score
from tests.support.spark_frames import message_batch, task

if TYPE_CHECKING:
    from pathlib import Path


DAYS = (date(2026, 1, 20), date(2026, 1, 21))
FLEET = ["--devices", "150", "--seed", "7", "--rate", "20/h"]
FAULTS = "drain:45,stuck:2,drift:2,clock:2,silent:2"


def simulate(hub: Path, *options: str) -> None:
    arguments = ["simulate", "--dir", str(hub), *FLEET, "--faults", FAULTS, *options]
    result = CliRunner().invoke(hub_cli, arguments)
    assert result.exit_code == 0, result.output


def ingest(hub: Path, root: str) -> None:
    """Read UP and write the points as the tasks of `ingest` do, without Spark around them."""
    endpoint = endpoint_from(HubPlace(str(hub)).source())
    tables = Ingest(root, SYSTEM_CLOCK)
    try:
        batches = [
            message_batch(stream.name, part)
            for stream in list_streams(endpoint, ["UP_*"]).values()
            for part in read_range(endpoint, stream.name, 1, stream.last_seq)
        ]
    finally:
        close_connections()
    tables.commit("test", 0, [task(root, tables.tables.next_ingest, *batches)])


@pytest.mark.nats
async def test_planted_faults_are_found_and_named_and_sound_vehicles_left_alone(
    tmp_path: Path,
) -> None:
    """Two days of the past, the same each time, and a second of now: that is when clocks show."""
    hub, root, truth = tmp_path / "hub", str(tmp_path / "tables"), tmp_path / "truth.json"
    past = ["--start", "2026-01-22T00:00:00Z", "--seconds", "0", "--backlog", "150x2d"]
    async with hub_running(tmp_path):
        await asyncio.to_thread(
            simulate, hub, *past, "--backlog-rate", "100000", "--truth", str(truth)
        )
        await asyncio.to_thread(simulate, hub, "--seconds", "1")
        await asyncio.to_thread(ingest, hub, root)
    Rollup(root, SYSTEM_CLOCK, run_here).run()
    job = FleetJob(root, SYSTEM_CLOCK, FleetSettings())
    stored = open_table(root, POINTS_TABLE).to_pyarrow_table(columns=["stored_at"]).column(0)
    days = [*DAYS, *stored.cast("date32").unique().to_pylist()]
    for day in days:
        job.run(day)
    found = score(
        json.loads(truth.read_text()), [row for day in days for row in standing(root, day)]
    )
    assert found.missed == []
    assert found.planted == {"drain": 3, "stuck": 2, "drift": 2, "clock": 2, "silent": 2}
    assert found.false_devices == found.false_firmwares == set()
    page = CliRunner().invoke(
        cli, ["report", "--table-root", root, "--day", "2026-01-21", "--out", str(tmp_path)]
    )
    assert page.exit_code == 0, page.output
    text = (tmp_path / "fleet-2026-01-21.html").read_text()
    assert "sticks at" in text
