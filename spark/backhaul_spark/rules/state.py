"""Read the twin actor's state back out of a checkpoint, for people who look for a fault. Driver.

By Spark's own reader of state stores, of the last batch that is whole. A query that runs is not disturbed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.errors import JobFailed, NothingFound
from backhaul_spark.rules.snapshot import SNAPSHOTS, snapshot_table
from backhaul_spark.rules.twins import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backhaul_spark.rules.plan import Plan

_MS_NS = 1_000_000


def read_state(spark: SparkSession, checkpoint: str, plan: Plan) -> pa.Table:
    """Return a snapshot of every device (schema SNAPSHOTS) as the state has it, by device.

    Args:
        spark: a session.
        checkpoint: of the query, a directory or URI.
        plan: the rules that the query runs with: what the state holds goes by them.

    Raises:
        NothingFound: the checkpoint has no state yet.
        JobFailed: it cannot be read, or was made with other rules.
    """
    numbers = _variable(spark, checkpoint, "numbers")
    names = _variable(spark, checkpoint, "names")
    tables = [SNAPSHOTS.empty_table()]
    for bucket, value in sorted(numbers.items()):
        twins = Twins(plan)
        try:
            said = names[bucket]["packed"] if bucket in names else twins.pack_names()
            twins.unpack(bytes(value["packed"]), bytes(said))
        except (ValueError, KeyError, TypeError) as error:
            raise JobFailed(f"the state of bucket {bucket} is of other rules: {error}") from error
        rows = np.arange(len(twins.devices.keys))
        tables.append(snapshot_table(plan, twins, rows, value["at_ms"] * _MS_NS).cast(SNAPSHOTS))
    return pa.concat_tables(tables).sort_by("device")


def _variable(spark: SparkSession, checkpoint: str, name: str) -> dict[int, Any]:
    from pyspark.errors import PySparkException

    try:
        state = spark.read.format("statestore").option("stateVarName", name).load(checkpoint)
        return {row["key"]["bucket"]: row["value"] for row in state.collect()}
    except PySparkException as error:
        if "CHECKPOINT" in str(error) or "STDS" in str(error):
            raise NothingFound(f"no state at {checkpoint}: {error}") from error
        raise JobFailed(str(error)) from error
