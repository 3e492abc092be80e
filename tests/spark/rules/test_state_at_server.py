"""With real servers: the actor's state read back out of a checkpoint that a real query has made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import NothingFoundError
from backhaul_spark.rules.config import read_plan
from backhaul_spark.rules.query import TwinQuery
from backhaul_spark.rules.state import read_state

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

    from tests.support.spark_server import HubServer

DEADLINE_S = 120.0


class Ears:
    """Hears which devices are in a batch."""

    def __init__(self) -> None:
        self.devices: set[str] = set()
        self.batch = -1

    def write(self, batch_id: int, alerts: pa.Table, snapshots: pa.Table) -> None:
        self.batch = batch_id
        self.devices |= set(snapshots["device"].to_pylist())


@pytest.mark.spark
@pytest.mark.nats
def test_the_state_of_every_device_is_read_from_outside(
    spark: SparkSession, hub_server: HubServer, tmp_path: Path
) -> None:
    config = tmp_path / "twin.toml"
    config.write_text("[twin]\nbuckets = 2\npartitions = 2\nlate_after_s = 36000\n")
    plan = read_plan(str(config))
    now = time.time_ns()
    devices = {f"VID-{number:03}" for number in range(5)}
    for number, device in enumerate(sorted(devices)):
        points = [Point("battery", "soc", now + n, 80.0 + number) for n in range(3)]
        hub_server.put([encode_frame(points, epoch=1, seq=1)], device=device)
    checkpoint, ears = str(tmp_path / "checkpoint"), Ears()
    commits = tmp_path / "checkpoint" / "commits"
    with pytest.raises(NothingFoundError):
        read_state(spark, checkpoint, plan)
    options: dict[str, Any] = hub_server.options | {"streams": "UP_00"}
    query = TwinQuery(spark, plan, options, checkpoint, ears, SYSTEM_CLOCK)
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S

    def heard() -> bool:
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, ears.devices
        # Not that no batch is under way: on a slow machine there is one at almost any moment.
        return ears.devices >= devices and (commits / str(ears.batch)).exists()

    query.run(0.3, heard)  # what is stopped amid its first batch leaves no state
    assert {path.name for path in (tmp_path / "checkpoint" / "state" / "0").glob("[0-9]*")} == {
        "0",
        "1",
    }
    assert not list((tmp_path / "checkpoint").rglob("*.crc"))
    found = read_state(spark, checkpoint, plan).to_pylist()
    assert {row["device"]: row["soc_pct"] for row in found} == {
        f"VID-{number:03}": 80.0 + number for number in range(5)
    }
