"""Run the twin actor as a structured streaming query: samples in, alerts and snapshots out. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from backhaul_runtime.clock import Clock
from backhaul_spark.checkpoint import prepare_checkpoint, with_scheme
from backhaul_spark.decode.sample_batch import Unread
from backhaul_spark.ingest.stream import run_query
from backhaul_spark.rules.actor import OUTPUT, TwinActor, tables_of
from backhaul_spark.rules.plan import Plan
from backhaul_spark.source.jetstream_source import JetStreamSource

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch then uploads what changed, not the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Outlet(Protocol):
    """Where alerts, commands and snapshots go."""

    def write(self, batch_id: int, alerts: pa.Table, snapshots: pa.Table) -> object:
        """Take a batch (schemas ALERTS and SNAPSHOTS), which may be one that it has had before."""
        ...


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The counts of one batch."""

    batch: int
    alerts: int
    snapshots: int
    unread: list[Unread] = field(default_factory=list)
    """Of each device that has some, in this batch."""


class TwinQuery:
    """One streaming query that feeds one Outlet.

    Args:
        source: options of the jetstream source; the format, and what goes with it, are set here.
        checkpoint: directory or URI of the query's own. It goes with `plan.buckets`.
        outlet: gets every batch that has something, in the driver.
        said: called after each of those batches.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        source: Mapping[str, str],
        checkpoint: str,
        outlet: Outlet,
        clock: Clock,
        said: Callable[[BatchCounts], None] = lambda said: None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        # A gap is ingest's to record, and the history's to know of; a rule goes on behind it.
        self._source = dict(source) | {
            "format": "samples",
            "onGap": "record",
            "signals": ",".join(map(str, plan.series)),
            "heads": ",".join(map(str, plan.heads)),
            "buckets": str(plan.buckets),
        }
        self._checkpoint = with_scheme(checkpoint)
        self._outlet = outlet
        self._clock = clock
        self._said = said

    def start(self, trigger_s: float) -> StreamingQuery:
        """Start the query: a batch every `trigger_s` seconds, until it is stopped."""
        self._spark.dataSource.register(JetStreamSource)
        prepare_checkpoint(self._spark, self._checkpoint)
        # A checkpoint keeps the number that it was made with, whatever is said here.
        partitions = {"spark.sql.shuffle.partitions": str(self._plan.partitions)}
        for key, value in (_STATE | partitions).items():
            self._spark.conf.set(key, value)
        actor = TwinActor(self._plan, self._clock.now_ns() // 1_000_000)
        samples = self._spark.readStream.format("jetstream").options(**self._source).load()
        said = samples.groupBy("bucket").transformWithStateInPandas(
            statefulProcessor=actor,
            outputStructType=OUTPUT,
            outputMode="Append",
            timeMode="ProcessingTime",
        )
        return (
            said.writeStream.foreachBatch(self._batch)
            .queryName("backhaul-twin")
            .outputMode("append")
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
            .start()
        )

    def run(self, trigger_s: float, stopping: Callable[[], bool]) -> None:
        """Start the query and wait until `stopping` says so.

        Raises:
            BackhaulSparkError: the query failed.
        """
        run_query(lambda: self.start(trigger_s), stopping)

    def _batch(self, said: DataFrame, batch: int) -> None:
        rows = [(row["what"], bytes(row["content"])) for row in said.collect()]
        if not rows:
            return
        tables = tables_of(rows)
        # Buckets and rules each say theirs; together they are heard in the order of events.
        alerts, snapshots = tables["alerts"], tables["snapshots"]
        if alerts.num_rows or snapshots.num_rows:
            self._outlet.write(batch, alerts.sort_by("time_ns"), snapshots)
        unread = [Unread(**row) for row in tables["unread"].to_pylist()]
        self._said(BatchCounts(batch, alerts.num_rows, snapshots.num_rows, unread))
