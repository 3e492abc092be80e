"""Read the twin actor's state back out of a checkpoint, for people who look for a fault. Driver.

By Spark's own reader of state stores, of the last batch that is whole. A query that runs is not disturbed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.errors import JobFailedError, NothingFoundError
from backhaul_spark.rules.kept import Kept, Store
from backhaul_spark.rules.snapshot import snapshot_table
from backhaul_spark.tables.schemas import SNAPSHOTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, Row, SparkSession

    from backhaul_spark.rules.plan import Plan

_MS_NS = 1_000_000
# Checkpoints of the version before have none of these (kept.py).
_NEW_VARIABLES = ("changes", "latest")


def read_state(spark: SparkSession, checkpoint: str, plan: Plan) -> pa.Table:
    """Return a snapshot of every device (schema SNAPSHOTS) as the state has it, by device.

    `plan` has the rules that the query runs with: what the state holds goes by them.

    Raises:
        NothingFoundError: the checkpoint has no state yet.
        JobFailedError: it cannot be read, or was made with other rules.
    """
    batch = _newest_batch(spark, checkpoint)
    parts = [_variable(spark, checkpoint, batch, name) for name in Store._fields]
    kept = Kept(plan)
    tables = [SNAPSHOTS.empty_table()]
    for number in sorted({bucket for part in parts for bucket, _ in part}):
        try:
            bucket = kept.load(number, Store(*(_Read(number, part) for part in parts)))
        except (ValueError, KeyError, TypeError) as error:
            raise JobFailedError(
                f"the state of bucket {number} is of other rules: {error}"
            ) from error
        rows = np.arange(len(bucket.twins.devices))
        now_ns = bucket.latest.at_ms * _MS_NS
        tables.append(snapshot_table(plan, bucket.twins, rows, now_ns).cast(SNAPSHOTS))
    return pa.concat_tables(tables).sort_by("device")


class _Read:
    """A store's contents for one bucket, by slot; None where there are none."""

    def __init__(self, bucket: int, values: dict[tuple[int, int | None], Any]) -> None:
        self._bucket, self._values = bucket, values

    def get(self) -> tuple[Any, ...] | None:
        return self._values.get((self._bucket, None))

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self._values.get((self._bucket, key[0]))

    def update(self, newValue: tuple[Any, ...]) -> None:
        raise NotImplementedError("a state that is read back is not written to")

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        raise NotImplementedError("a state that is read back is not written to")


def _newest_batch(spark: SparkSession, checkpoint: str) -> int:
    """Return the last batch that is whole: all variables are read as of one."""
    found = _rows(spark.read.format("state-metadata"), checkpoint)
    return int(max((row["maxBatchId"] for row in found), default=0))


def _variable(
    spark: SparkSession, checkpoint: str, batch: int, name: str
) -> dict[tuple[int, int | None], Any]:
    """Return the stored values by bucket, and slot where there are any."""
    reader = spark.read.format("statestore").option("stateVarName", name).option("batchId", batch)
    found: dict[tuple[int, int | None], Any] = {}
    try:
        rows = _rows(reader, checkpoint)
    except NothingFoundError:
        if name not in _NEW_VARIABLES:
            raise
        return found
    for row in rows:
        slotted = "user_map_key" in row
        key = (row["key"]["bucket"], row["user_map_key"]["slot"] if slotted else None)
        found[key] = tuple(row["user_map_value"] if slotted else row["value"])
    return found


def _rows(reader: DataFrameReader, checkpoint: str) -> list[Row]:
    from pyspark.errors import PySparkException

    try:
        return reader.load(checkpoint).collect()
    except PySparkException as error:
        if "CHECKPOINT" in str(error) or "STDS" in str(error):
            raise NothingFoundError(f"no state at {checkpoint}: {error}") from error
        raise JobFailedError(str(error)) from error
