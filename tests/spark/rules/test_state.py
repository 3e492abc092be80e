"""The actor's state read back out of a checkpoint that a real query has made."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException

from backhaul_spark.errors import NothingFoundError
from backhaul_spark.rules.config import plan_from
from backhaul_spark.rules.state import read_state
from tests.support.twin_batches import Bucket


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
