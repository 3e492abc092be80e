"""The actor's state read back out of a checkpoint that a real query has made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import NothingFoundError
from backhaul_spark.rules.config import plan_from, read_plan
from backhaul_spark.rules.query import TwinQuery
from backhaul_spark.rules.state import read_state
from tests.support.twin_batches import Bucket

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


class OldCheckpoint:
    """Stands for a session, and its reader, of a checkpoint by variable: no others are known."""

    def __init__(self, **variables: dict[int, tuple[Any, ...]]) -> None:
        self._variables = variables
        self._rows: list[dict[str, Any]] | None = []
        self.read = self

    def format(self, name: str) -> OldCheckpoint:
        self._rows = [{"maxBatchId": 4}]
        return self

    def option(self, name: str, value: Any) -> OldCheckpoint:
        if name == "stateVarName":
            found = self._variables.get(value)
            self._rows = None
            if found is not None:
                self._rows = [{"key": {"bucket": key}, "value": row} for key, row in found.items()]
        return self

    def load(self, checkpoint: str) -> OldCheckpoint:
        return self

    def collect(self) -> list[dict[str, Any]]:
        if self._rows is None:
            raise AnalysisException("[STDS_INVALID_OPTION_VALUE.WITH_MESSAGE] is not defined")
        return self._rows


def test_the_state_that_the_version_before_kept_is_read_too() -> None:
    numbers: dict[int, tuple[Any, ...]] = {}
    names: dict[int, tuple[Any, ...]] = {}
    for number, device in enumerate(("VID-001", "VID-002")):
        bucket = Bucket()
        bucket.say(device, 1, ("battery.soc", 1, 80.0 + number))
        bucket.run(1)
        numbers[number] = (bucket.twins.pack(), 7, 8)
        names[number] = (bucket.twins.pack_names(),)
    old: Any = OldCheckpoint(numbers=numbers, names=names)
    found = read_state(old, "checkpoint", plan_from({}, "test")).to_pylist()
    assert [(row["device"], row["soc_pct"]) for row in found] == [
        ("VID-001", 80.0),
        ("VID-002", 81.0),
    ]
    without: Any = OldCheckpoint()
    with pytest.raises(NothingFoundError):
        read_state(without, "checkpoint", plan_from({}, "test"))


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
