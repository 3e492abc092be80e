"""The twin actor: the engine as a stateful operator of Spark, a bucket of devices a key. Executor.

State is a few values of bytes a bucket (kept.py), not one a device: Spark handles 1,500 devices a second
that way, and the arrays hold tens of thousands. A bucket's timer ticks for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from backhaul_spark.columns import columns, packed, unpacked
from backhaul_spark.decode.sample_batch import Batch, Unread, hashes
from backhaul_spark.errors import OptionError
from backhaul_spark.garbage import spare_modules
from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.kept import CHANGES, LATEST, NAMES, NUMBERS, SLOT, Bucket, Kept, Store
from backhaul_spark.rules.plan import Plan
from backhaul_spark.rules.rule import SECOND_NS
from backhaul_spark.rules.snapshot import snapshot_table
from backhaul_spark.rules.twins import Twins
from backhaul_spark.tables.schemas import ALERTS, SNAPSHOTS

# One row for all alerts, one for all snapshots of a bucket, one for messages that could not be read: a table of Arrow each, as bytes.
OUTPUT = "bucket int, what string, content binary"
UNREAD = columns("device string, messages bigint, first_ns bigint, last_ns bigint")
KINDS = {"alerts": ALERTS, "snapshots": SNAPSHOTS, "unread": UNREAD}
_MS_NS = 1_000_000
# What was stored up to so long before a batch runs has been read by it, unless the batch says otherwise.
BEHIND_NS = 30 * SECOND_NS
# What this process keeps of the buckets of one query, which is known by when it started.
_kept: dict[int, Kept] = {}


class TwinActor(StatefulProcessor):
    """Keeps one bucket's twins.

    Args:
        started_ms: when this query started, wall clock. The hub may have been away until then, so for
            `plan.grace_s` nobody's silence is told.
    """

    def __init__(self, plan: Plan, started_ms: int) -> None:
        self._plan = plan
        self._started_ms = started_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state. Executor."""
        spare_modules("twin")
        self._handle = handle
        self._engine = Engine(self._plan)
        self._store = Store(
            handle.getValueState("numbers", NUMBERS),
            handle.getMapState("changes", SLOT, CHANGES),
            handle.getValueState("names", NAMES),
            handle.getValueState("latest", LATEST),
        )
        if self._started_ms not in _kept:
            _kept.clear()
            _kept[self._started_ms] = Kept(self._plan)
        self._kept = _kept[self._started_ms]

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take in one bucket's part of a batch: rows of samples.SAMPLE_ROWS. Executor."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        frame = pd.concat(list(rows))
        columns = (frame["messages"], frame["samples"], frame["said"])
        batch = Batch.join(Batch.unpack(*parts) for parts in zip(*columns, strict=True))
        bucket = self._load(key, now_ms)
        twins = bucket.twins
        # How far each stream was read; the one that is furthest behind counts.
        until_ns = int(frame.groupby("stream")["until_ns"].max().min())
        alerts, touched = self._engine.take(twins, batch, now_ms * _MS_NS, until_ns)
        yield from self._say(key, twins, alerts, touched, now_ms, batch.unread)
        self._kept.save(key[0], bucket, self._store, until_ns, now_ms)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Look at all devices of a bucket, and have it ticked again. Executor."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        self._handle.registerTimer(now_ms + self._tick_ms)
        if now_ms - self._started_ms < self._plan.grace_s * 1000:
            return
        now_ns = now_ms * _MS_NS
        bucket = self._load(key, now_ms)
        twins, latest = bucket.twins, bucket.latest
        read_ns = read_until(now_ns, latest.until_ns, same_batch=latest.at_ms == now_ms)
        alerts, touched = self._engine.tick(twins, now_ns, read_ns)
        yield from self._say(key, twins, alerts, touched, now_ms)
        self._kept.save(key[0], bucket, self._store, latest.until_ns, latest.at_ms)

    def close(self) -> None:
        """Release nothing: Spark closes the state. Executor."""

    def _load(self, key: Any, now_ms: int) -> Bucket:
        bucket = self._kept.load(key[0], self._store)
        # What the hub said before somebody else had this bucket: its next word comes within a minute.
        bucket.twins.watched_ns = bucket.twins.watched_ns or now_ms * _MS_NS
        if not bucket.latest.at_ms:
            self._handle.registerTimer(now_ms + self._tick_ms)
        if (bucket.twins.devices.keys % np.uint64(self._plan.buckets) != key[0]).any():
            raise OptionError(
                "[twin] buckets", self._plan.buckets, "as the checkpoint was made with"
            )
        return bucket

    def _say(
        self,
        key: Any,
        twins: Twins,
        alerts: list[Alert],
        touched: NDArray[np.intp],
        now_ms: int,
        unread: Sequence[Unread] = (),
    ) -> Iterator[pd.DataFrame]:
        """Yield the alerts, snapshots of the devices that they, and the time, call for, and counts of unread messages."""
        now_ns = now_ms * _MS_NS
        shown = twins.devices["device"]["shown_ns"]
        due = touched[now_ns - shown[touched] >= self._plan.snapshot_every_s * SECOND_NS]
        named = twins.devices.find(hashes({alert.device for alert in alerts}))
        rows = np.union1d(due, named)
        shown[rows] = now_ns
        content = {}
        if alerts:
            content["alerts"] = packed(alert_table(alerts))
        if len(rows):
            content["snapshots"] = packed(snapshot_table(self._plan, twins, rows, now_ns))
        if unread:
            content["unread"] = packed(
                pa.Table.from_pylist([each._asdict() for each in unread], UNREAD)
            )
        if content:
            yield pd.DataFrame(
                {
                    "bucket": [key[0]] * len(content),
                    "what": list(content),
                    "content": list(content.values()),
                }
            )

    @property
    def _tick_ms(self) -> int:
        return round(self._plan.tick_s * 1000)


def read_until(now_ns: int, until_ns: int, *, same_batch: bool) -> int:
    """Return up to when everything that the hub stored has been taken in.

    Args:
        now_ns: when the batch runs.
        until_ns: when the newest message was stored of the last batch that had any.
        same_batch: that is this one. One without any has found nothing more to read.
    """
    behind = same_batch and now_ns - until_ns > BEHIND_NS
    return until_ns if behind else now_ns


def tables_of(rows: list[tuple[str, bytes]]) -> dict[str, pa.Table]:
    """Return the buckets' words in one batch, by `what`; empty tables for nothing. Driver."""
    found = {what: [schema.empty_table()] for what, schema in KINDS.items()}
    for what, content in rows:
        found[what].append(unpacked(content))
    return {what: pa.concat_tables(tables) for what, tables in found.items()}
